"""A conversation by a plan that is read from the input: what the user says, which tools there are and what they
answer. Whole or streamed. Prints the conversation at its end and the calls that were run."""

import json
import sys

from openai import OpenAI

plan = json.load(sys.stdin)
client = OpenAI(max_retries=0, default_headers={"x-toolrein-profile": plan["profile"]})
messages, results, ran = plan["messages"], plan["results"], []


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


def run(call):
    """The next of the answers that the plan has for the tool; each stands in it as often as it is called."""
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    ran.append([name, arguments])
    return {"role": "tool", "tool_call_id": call["id"], "content": results[name].pop(0)}


turn = {"whole": whole, "streamed": streamed}[sys.argv[1]]
for said in plan["says"]:
    messages.append({"role": "user", "content": said})
    while True:
        message = turn({"model": "gpt-4o", "messages": messages, "tools": plan["tools"]})
        messages.append(message)
        if not message.get("tool_calls"):
            break
        messages.extend([run(call) for call in message["tool_calls"]])
print(json.dumps({"messages": messages, "ran": ran}))
