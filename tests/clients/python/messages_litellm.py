"""LiteLLM as a library: chat completions that it translates into the Messages API. Whole and streamed."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
# Its table of prices comes with the package; the scenarios talk to nobody but their base URL.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402
from litellm.llms.custom_httpx.http_handler import HTTPHandler  # noqa: E402
from messages_plays import DESCRIPTIONS, MOST_REQUESTS, SCHEMAS, play_all  # noqa: E402

litellm.suppress_debug_info = True
TOOLS = [
    {"type": "function", "function": {"name": name, "description": DESCRIPTIONS[name], "parameters": schema}}
    for name, schema in SCHEMAS.items()
]


# Each request has a pool of connections of its own: LiteLLM leaves streams unread that end early, and where Python drops one
# while httpcore holds the lock of their pool, the process hangs.
def whole(ask):
    return litellm.completion(**ask, client=HTTPHandler())


def streamed(ask):
    chunks = litellm.completion(**ask, client=HTTPHandler(), stream=True)
    return litellm.stream_chunk_builder(list(chunks), messages=ask["messages"])


def agent(turn):
    def run(play, tools):
        ask = {"model": f"anthropic/{play['model']}", "api_base": play["url"], "api_key": "sk-ant-test", "max_tokens": 4096}
        messages = [{"role": "user", "content": play["says"]}]
        for _ in range(MOST_REQUESTS):
            message = turn({**ask, "messages": messages, "tools": TOOLS, "max_retries": 0, "num_retries": 0}).choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return message.content
            for call in message.tool_calls:
                result = tools.run(call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        raise AssertionError(f"{MOST_REQUESTS} replies, and no end")

    return run


play_all({"whole": agent(whole), "streamed": agent(streamed)})
