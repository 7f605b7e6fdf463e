"""Pydantic-AI with its model of the Responses API: a tool loop with parallel calls, or a model that never stops calling.
Whole and streamed."""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.usage import UsageLimits

made = []


def weather(city: str) -> str:
    """The weather in a city."""
    made.append(city)
    return f"clear in {city}"


def search() -> str:
    """Searches."""
    return "nothing found"


async def main(scenario, form):
    tool, question = (weather, "What is the weather?") if scenario == "tools" else (search, "Find it.")
    agent = Agent(OpenAIResponsesModel("gpt-scripted"), tools=[tool])
    limits = UsageLimits(request_limit=60)
    if form == "streamed":
        async with agent.run_stream(question, usage_limits=limits) as run:
            text = await run.get_output()
    else:
        text = (await agent.run(question, usage_limits=limits)).output
    assert text, "a final text"
    if scenario == "tools":
        assert text == "Clear everywhere.", text
        assert made[0] == "Rome" and sorted(made[1:]) == ["Bern", "Oslo"], made
    print(f"ended with: {text}")


asyncio.run(main(*sys.argv[1].split("-")))
