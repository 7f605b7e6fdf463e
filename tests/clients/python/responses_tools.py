"""A tool loop on the Responses API until the model answers with text: one call, then two at once, then the answer."""

import json
import sys
from pathlib import Path
from runpy import run_path

from openai import OpenAI

kit = run_path(str(Path(__file__).with_name("responses_turns.py")))
city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
tools = [{"type": "function", "name": "weather", "description": "The weather", "parameters": city, "strict": True}]
made = []


def run(call):
    made.append(call.arguments)
    return json.dumps({"city": json.loads(call.arguments)["city"], "sky": "clear"})


turn = kit["turns"](OpenAI(max_retries=0))[sys.argv[1]]
question = "What is the weather in Rome, Oslo and Bern?"
ask = {"model": "gpt-scripted", "input": question, "tools": tools, "store": False}
text, replies = kit["loop"](turn, ask, run)
assert (text, replies) == ("Clear everywhere.", 3), (text, replies)
assert made == ['{"city":"Rome"}', '{"city":"Oslo"}', '{"city":"Bern"}'], made
