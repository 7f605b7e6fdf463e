"""An agent without a limit of its own, and a model that asks for the same tool for ever: it ends with text, by
whichever interface, and nothing raises."""

import sys

from openai import OpenAI

client = OpenAI(max_retries=0)
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}]


def whole(ask):
    return client.chat.completions.create(**ask).choices[0].message.model_dump(exclude_none=True)


def streamed(ask):
    text, calls = "", {}
    for chunk in client.chat.completions.create(**ask, stream=True):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, {"type": "function", "function": {"name": "", "arguments": ""}})
                call["id"] = part.id or call["id"]
                call["function"]["name"] += part.function.name or ""
                call["function"]["arguments"] += part.function.arguments or ""
    message = {"role": "assistant", "content": text}
    return message | {"tool_calls": list(calls.values())} if calls else message


def helper(ask):
    with client.chat.completions.stream(**ask) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.role == "assistant", message
    return message.model_dump(exclude_none=True)


turn = {"whole": whole, "streamed": streamed, "helper": helper}[sys.argv[1]]
messages = [{"role": "user", "content": "Find it."}]
for step in range(60):
    message = turn({"model": "gpt-scripted", "messages": messages, "tools": TOOLS})
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "nothing found"})
assert message.get("content"), message
assert not message.get("tool_calls"), message
print(f"ended after {step + 1} replies with: {message['content']}")
