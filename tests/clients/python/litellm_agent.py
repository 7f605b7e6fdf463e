"""LiteLLM's `responses()` as a library: a tool loop with parallel calls, or a model that never stops calling, with the
history sent again each time. Whole and streamed."""

import json
import os
import sys

# Its table of prices comes with the package; the scenarios talk to nobody but their base URL.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402

litellm.suppress_debug_info = True


def tool(name, *properties):
    schema = {"type": "object", "properties": {p: {"type": "string"} for p in properties}, "required": list(properties)}
    return {"type": "function", "name": name, "parameters": schema, "strict": False}


def turn(form, ask):
    if form == "whole":
        return litellm.responses(**ask)
    for event in litellm.responses(**ask, stream=True):
        if event.type == "response.completed":
            return event.response
    raise AssertionError("no last event")


scenario, form = sys.argv[1].split("-")
question, used = ("What is the weather?", tool("weather", "city")) if scenario == "tools" else ("Find it.", tool("search"))
address = {"api_base": os.environ["OPENAI_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"], "max_retries": 0}
made, history = [], [{"role": "user", "content": question}]
for _ in range(60):
    response = turn(form, {"model": "openai/gpt-scripted", "input": history, "tools": [used], **address})
    calls = [item for item in response.output if item.type == "function_call"]
    if not calls:
        break
    for call in calls:
        made.append(json.loads(call.arguments).get("city"))
        history.append({"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments})
    history += [{"type": "function_call_output", "call_id": call.call_id, "output": "nothing"} for call in calls]
text = "".join(part.text for item in response.output if item.type == "message" for part in item.content)
assert not calls and text, response
if scenario == "tools":
    assert (text, made) == ("Clear everywhere.", ["Rome", "Oslo", "Bern"]), (text, made)
print(f"ended with: {text}")
