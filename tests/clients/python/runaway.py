"""An agent without a limit of its own, and a model that asks for the same tool for ever: it ends with text, by
whichever interface, and nothing raises."""

import sys
from pathlib import Path
from runpy import run_path

from openai import OpenAI

client = OpenAI(max_retries=0)
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}]
turn = run_path(str(Path(__file__).with_name("turns.py")))["turns"](client)[sys.argv[1]]
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
