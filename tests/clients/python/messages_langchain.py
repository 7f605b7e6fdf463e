"""LangChain's chat model of the Messages API in a loop of its own. Whole and streamed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from langchain_anthropic import ChatAnthropic  # noqa: E402
from langchain_core.messages import HumanMessage, ToolMessage  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from messages_plays import MOST_REQUESTS, play_all  # noqa: E402


def whole(model, messages):
    return model.invoke(messages)


def streamed(model, messages):
    reply = None
    for chunk in model.stream(messages):
        reply = chunk if reply is None else reply + chunk
    return reply


def agent(turn):
    def run(play, tools):
        model = ChatAnthropic(
            model=play["model"], base_url=play["url"], api_key="sk-ant-test", max_retries=0, max_tokens=4096, thinking={"type": "adaptive"}
        )
        used = {t.name: t for t in (tool(tools.get_weather), tool(tools.search))}
        model, messages = model.bind_tools(list(used.values())), [HumanMessage(play["says"])]
        for _ in range(MOST_REQUESTS):
            reply = turn(model, messages)
            messages.append(reply)
            if not reply.tool_calls:
                return str(reply.text)
            for call in reply.tool_calls:
                messages.append(ToolMessage(used[call["name"]].invoke(call["args"]), tool_call_id=call["id"]))
        raise AssertionError(f"{MOST_REQUESTS} replies, and no end")

    return run


play_all({"whole": agent(whole), "streamed": agent(streamed)})
