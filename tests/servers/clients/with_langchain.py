"""LangChain's `ChatOpenAI`: chat completions and Responses, whole and streamed, with the history sent or kept upstream."""

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from tools import MOST_TURNS, SCHEMAS, Runaway, schema, serve


def converse(job, tools, texts):
    model = ChatOpenAI(
        model=job["model"], base_url=job["url"], api_key=job["key"], max_retries=0, timeout=120,
        use_responses_api=job["api"] == "responses", use_previous_response_id=job["is_chained"],
    )
    declared = [{"type": "function", "function": dict(zip(("name", "description", "parameters"), schema(name)))} for name in SCHEMAS]
    model = model.bind_tools(declared, parallel_tool_calls=True, **job["options"])
    messages, answers = [HumanMessage(job["question"])], list(job["answers"])
    for _ in range(MOST_TURNS):
        message = (streamed if job["is_streamed"] else model.invoke)(*([model] if job["is_streamed"] else []), messages)
        messages.append(message)
        for call in message.tool_calls:
            messages.append(ToolMessage(tools.run(call["name"], call["args"]), tool_call_id=call["id"]))
        if message.tool_calls:
            continue
        if message.invalid_tool_calls:
            raise RuntimeError(f"calls that cannot be read: {message.invalid_tool_calls}")
        texts.append(str(message.text))
        if not answers:
            return
        messages.append(HumanMessage(answers.pop(0)))
    raise Runaway(len(tools.made))


def streamed(model, messages):
    message = None
    for chunk in model.stream(messages):
        message = chunk if message is None else message + chunk
    return message


serve(converse)
