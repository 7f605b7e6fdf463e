"""Pydantic-AI with its model of the Messages API. Whole and streamed."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from anthropic import AsyncAnthropic  # noqa: E402
from messages_plays import MOST_REQUESTS, play_all  # noqa: E402
from pydantic_ai import Agent  # noqa: E402
from pydantic_ai.models.anthropic import AnthropicModel  # noqa: E402
from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: E402
from pydantic_ai.usage import UsageLimits  # noqa: E402


async def read_all(context, events):
    """With a handler of its events every request of the run is streamed; `run_stream` would end at the first text."""
    async for _ in events:
        pass


async def agent(play, tools, handler):
    client = AsyncAnthropic(base_url=play["url"], api_key="sk-ant-test", max_retries=0)
    model = AnthropicModel(play["model"], provider=AnthropicProvider(anthropic_client=client))
    settings = {"anthropic_thinking": {"type": "adaptive"}, "max_tokens": 4096}
    agent = Agent(model, tools=[tools.get_weather, tools.search], model_settings=settings)
    limits = UsageLimits(request_limit=MOST_REQUESTS)
    return (await agent.run(play["says"], usage_limits=limits, event_stream_handler=handler)).output


play_all(
    {
        "whole": lambda play, tools: asyncio.run(agent(play, tools, None)),
        "streamed": lambda play, tools: asyncio.run(agent(play, tools, read_all)),
    }
)
