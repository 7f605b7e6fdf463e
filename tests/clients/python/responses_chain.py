"""The Responses API with the history kept upstream, by `previous_response_id` or in a conversation: a tool loop with
parallel calls, or a model that never stops calling. Each request sends the new items alone. Whole and streamed."""

import json
import sys

from openai import OpenAI


def tool(name, *properties):
    schema = {"type": "object", "properties": {p: {"type": "string"} for p in properties}, "required": properties}
    return {"type": "function", "name": name, "parameters": schema | {"additionalProperties": False}, "strict": True}


client = OpenAI(max_retries=0)
scenario, history, form = sys.argv[1].split("-")
question, used = ("What is the weather?", tool("weather", "city")) if scenario == "tools" else ("Find it.", tool("search"))
kept = {"conversation": client.conversations.create().id} if history == "conversation" else {}
made = []


def turn(ask):
    if form == "whole":
        return client.responses.create(**ask)
    with client.responses.stream(**ask) as stream:
        return stream.get_final_response()


items = [{"role": "user", "content": question}]
for _ in range(60):
    response = turn({"model": "gpt-scripted", "input": items, "tools": [used], **kept})
    if history == "previous":
        kept = {"previous_response_id": response.id}
    calls = [item for item in response.output if item.type == "function_call"]
    if not calls:
        break
    made += [json.loads(call.arguments).get("city") for call in calls]
    items = [{"type": "function_call_output", "call_id": call.call_id, "output": "nothing found"} for call in calls]
assert not calls and response.output_text, response
if scenario == "tools":
    assert (response.output_text, made) == ("Clear everywhere.", ["Rome", "Oslo", "Bern"]), (response, made)
print(f"ended with: {response.output_text}")
