"""The `anthropic` package: raw iteration of the events, whole replies, the stream helper, and the tool runner: with threads, its
default, and without. The first argument names the package's major version: 1, which has no threads, is in a folder of its own."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
if sys.argv[1] == "1":
    sys.path.insert(0, str(Path(sys.prefix) / "anthropic-1"))

import anthropic  # noqa: E402
from messages_plays import DESCRIPTIONS, MOST_REQUESTS, SCHEMAS, play_all  # noqa: E402

assert anthropic.__version__.startswith(f"{sys.argv[1]}."), anthropic.__version__

TOOLS = [{"name": name, "description": DESCRIPTIONS[name], "input_schema": schema} for name, schema in SCHEMAS.items()]


def client_of(play):
    return anthropic.Anthropic(base_url=play["url"], api_key="sk-ant-test", max_retries=0)


def request_of(play):
    thinking = {"type": "adaptive"}
    return {"model": play["model"], "max_tokens": 4096, "thinking": thinking, "messages": [{"role": "user", "content": play["says"]}]}


def raw(client, ask):
    """Puts the blocks together from the events, each under its index."""
    blocks, pieces = {}, {}
    for event in client.messages.create(**ask, stream=True):
        if event.type == "content_block_start":
            blocks[event.index] = event.content_block.model_dump(exclude_none=True)
            pieces[event.index] = ""
        elif event.type == "content_block_delta":
            block, delta = blocks[event.index], event.delta
            if delta.type == "text_delta":
                block["text"] += delta.text
            elif delta.type == "thinking_delta":
                block["thinking"] += delta.thinking
            elif delta.type == "signature_delta":
                block["signature"] = delta.signature
            elif delta.type == "input_json_delta":
                pieces[event.index] += delta.partial_json
        elif event.type == "content_block_stop" and pieces[event.index]:
            blocks[event.index]["input"] = json.loads(pieces[event.index])
    return [blocks[index] for index in sorted(blocks)]


def whole(client, ask):
    return [block.model_dump(exclude_none=True) for block in client.messages.create(**ask).content]


def helper(client, ask):
    with client.messages.stream(**ask) as stream:
        for _ in stream.text_stream:
            pass
        # The helper adds what the API does not take back.
        return [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in stream.get_final_message().content]


def looped(turn):
    """An agent that runs the calls of a reply itself."""

    def run(play, tools):
        client, ask = client_of(play), request_of(play)
        for _ in range(MOST_REQUESTS):
            content = turn(client, {**ask, "tools": TOOLS})
            ask["messages"].append({"role": "assistant", "content": content})
            calls = [block for block in content if block["type"] == "tool_use"]
            if not calls:
                return "".join(block["text"] for block in content if block["type"] == "text")
            results = [(call["id"], tools.run(call["name"], call["input"])) for call in calls]
            results = [{"type": "tool_result", "tool_use_id": i, "content": text} for i, text in results]
            ask["messages"].append({"role": "user", "content": results})
        raise AssertionError(f"{MOST_REQUESTS} replies, and no end")

    return run


def runner(**options):
    """The package's own loop."""

    def run(play, tools):
        used = [anthropic.beta_tool(tools.get_weather), anthropic.beta_tool(tools.search)]
        run = client_of(play).beta.messages.tool_runner(**request_of(play), tools=used, max_iterations=MOST_REQUESTS, **options)
        for step in run:
            message = step.get_final_message() if options.get("stream") else step
        assert not any(block.type == "tool_use" for block in message.content), message.stop_reason
        return "".join(block.text for block in message.content if block.type == "text")

    return run


play_all(
    {
        "raw": looped(raw),
        "whole": looped(whole),
        "helper": looped(helper),
        "runner": runner(),
        "streamed runner": runner(stream=True),
        "runner without threads": runner(thread=False),
    }
)
