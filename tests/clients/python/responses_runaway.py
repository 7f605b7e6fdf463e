"""An agent on the Responses API without a limit of its own, and a model that asks for the same tool for ever: it ends
with text, by whichever interface, and nothing raises."""

import sys
from pathlib import Path
from runpy import run_path

from openai import OpenAI

kit = run_path(str(Path(__file__).with_name("responses_turns.py")))
none = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
tools = [{"type": "function", "name": "search", "parameters": none, "strict": True}]
turn = kit["turns"](OpenAI(max_retries=0))[sys.argv[1]]
text, replies = kit["loop"](turn, {"model": "gpt-scripted", "input": "Find it.", "tools": tools}, lambda _: "nothing found")
assert text, "a final text"
print(f"ended after {replies} replies with: {text}")
