"""A tool loop until the model answers with text: one call, then two at once, then the answer. Whole, streamed and
with the stream helper."""

import json
import sys

from openai import OpenAI

client = OpenAI(max_retries=0)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def whole(ask):
    message = client.chat.completions.create(**ask).choices[0].message
    return message.content, [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or []]


def streamed(ask):
    text, calls = "", {}
    for chunk in client.chat.completions.create(**ask, stream=True):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, ["", "", ""])
                call[0] += part.id or ""
                call[1] += part.function.name or ""
                call[2] += part.function.arguments or ""
    return text, [tuple(calls[index]) for index in sorted(calls)]


def helper(ask):
    with client.chat.completions.stream(**ask) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.role == "assistant", message
    return message.content, [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or []]


def loop(turn):
    """Plays until the model makes no more calls; its last text and the calls of each reply."""
    messages = [{"role": "user", "content": "What is the weather in Rome, Oslo and Bern?"}]
    rounds = []
    while True:
        text, calls = turn({"model": "gpt-scripted", "messages": messages, "tools": TOOLS})
        if not calls:
            return text, rounds
        rounds.append(calls)
        spoken = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
        messages.append({"role": "assistant", "content": text or None, "tool_calls": spoken})
        for call_id, name, arguments in calls:
            assert name == "weather", name
            result = json.dumps({"city": json.loads(arguments)["city"], "sky": "clear"})
            messages.append({"role": "tool", "tool_call_id": call_id, "content": result})


text, rounds = loop({"whole": whole, "streamed": streamed, "helper": helper}[sys.argv[1]])
assert text == "Clear everywhere.", text
assert rounds == [
    [("call_1", "weather", '{"city":"Rome"}')],
    [("call_2", "weather", '{"city":"Oslo"}'), ("call_3", "weather", '{"city":"Bern"}')],
], rounds
