"""A conversation by a plan that is read from the input: what the user says, which tools there are and what they
answer. Whole or streamed. Prints the conversation at its end and the calls that were run."""

import json
import sys
from pathlib import Path
from runpy import run_path

from openai import OpenAI

plan = json.load(sys.stdin)
profile = {"x-toolrein-profile": plan["profile"]} if plan["profile"] else {}
client = OpenAI(max_retries=0, default_headers=profile)
turns = run_path(str(Path(__file__).with_name("turns.py")))["turns"](client)
messages, results, ran = plan["messages"], plan["results"], []


def run(call):
    """The next of the answers that the plan has for the tool; each stands in it as often as it is called."""
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    ran.append([name, arguments])
    return {"role": "tool", "tool_call_id": call["id"], "content": results[name].pop(0)}


turn = turns[sys.argv[1]]
for said in plan["says"]:
    messages.append({"role": "user", "content": said})
    while True:
        message = turn({"model": "gpt-4o", "messages": messages, "tools": plan["tools"]})
        messages.append(message)
        if not message.get("tool_calls"):
            break
        messages.extend([run(call) for call in message["tool_calls"]])
print(json.dumps({"messages": messages, "ran": ran}))
