"""LangChain's chat model with `use_responses_api`: a tool loop with parallel calls, or a model that never stops calling.
Whole and streamed."""

import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

made = []


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    made.append(city)
    return f"clear in {city}"


@tool
def search() -> str:
    """Searches."""
    return "nothing found"


def whole(model, messages):
    return model.invoke(messages)


def streamed(model, messages):
    reply = None
    for chunk in model.stream(messages):
        reply = chunk if reply is None else reply + chunk
    return reply


scenario, form = sys.argv[1].split("-")
used, question = (weather, "What is the weather?") if scenario == "tools" else (search, "Find it.")
model = ChatOpenAI(model="gpt-scripted", use_responses_api=True, max_retries=0).bind_tools([used])
messages = [HumanMessage(question)]
for _ in range(60):
    reply = {"whole": whole, "streamed": streamed}[form](model, messages)
    messages.append(reply)
    if not reply.tool_calls:
        break
    messages += [ToolMessage(used.invoke(call["args"]), tool_call_id=call["id"]) for call in reply.tool_calls]
text = str(reply.text)
assert not reply.tool_calls and text, reply
if scenario == "tools":
    assert (text, made) == ("Clear everywhere.", ["Rome", "Oslo", "Bern"]), (text, made)
print(f"ended with: {text}")
