"""The `openai` package, used as most programs use it: chat completions and Responses, whole and streamed."""

from openai import OpenAI

from tools import MOST_TURNS, SCHEMAS, Runaway, schema, serve


def converse(job, tools, texts):
    client = OpenAI(base_url=job["url"], api_key=job["key"], max_retries=0, timeout=120)
    loop = {"chat": chat, "responses": responses}[job["api"]]
    loop(client, job, tools, texts)


def chat(client, job, tools, texts):
    declared = [{"type": "function", "function": dict(zip(("name", "description", "parameters"), schema(name)))} for name in SCHEMAS]
    messages, answers = [{"role": "user", "content": job["question"]}], list(job["answers"])
    for _ in range(MOST_TURNS):
        request = {"model": job["model"], "messages": messages, "tools": declared, "parallel_tool_calls": True, **job["options"]}
        message = (streamed_chat if job["is_streamed"] else whole_chat)(client, request)
        messages.append(message)
        for call in message.get("tool_calls", ()):
            result = tools.run(call["function"]["name"], call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if message.get("tool_calls"):
            continue
        texts.append(message["content"])
        if not answers:
            return
        messages.append({"role": "user", "content": answers.pop(0)})
    raise Runaway(len(tools.made))


def whole_chat(client, request):
    return client.chat.completions.create(**request).choices[0].message.model_dump(exclude_none=True)


def streamed_chat(client, request):
    """Puts the deltas together by index, as examples everywhere do."""
    text, calls = None, {}
    for chunk in client.chat.completions.create(**request, stream=True):
        for choice in chunk.choices:
            if choice.delta.content is not None:
                text = (text or "") + choice.delta.content
            for delta in choice.delta.tool_calls or ():
                call = calls.setdefault(delta.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
                call["id"] = delta.id or call["id"]
                call["function"]["name"] += delta.function.name or ""
                call["function"]["arguments"] += delta.function.arguments or ""
    message = {"role": "assistant", "content": text}
    return message | ({"tool_calls": list(calls.values())} if calls else {})


def responses(client, job, tools, texts):
    declared = [{"type": "function", "strict": False, **dict(zip(("name", "description", "parameters"), schema(name)))} for name in SCHEMAS]
    new, answers, chain = [{"role": "user", "content": job["question"]}], list(job["answers"]), {}
    for _ in range(MOST_TURNS):
        request = {"model": job["model"], "input": new, "tools": declared, "parallel_tool_calls": True, **chain, **job["options"]}
        identity, items = (streamed_response if job["is_streamed"] else whole_response)(client, request)
        if job["is_chained"]:
            new, chain = [], {"previous_response_id": identity}
        else:
            new = new + items
        calls = [item for item in items if item["type"] == "function_call"]
        for call in calls:
            new.append({"type": "function_call_output", "call_id": call["call_id"], "output": tools.run(call["name"], call["arguments"])})
        if calls:
            continue
        texts.append("".join(part["text"] for item in items if item["type"] == "message" for part in item["content"]))
        if not answers:
            return
        new = new + [{"role": "user", "content": answers.pop(0)}]
    raise Runaway(len(tools.made))


def whole_response(client, request):
    response = client.responses.create(**request)
    return response.id, [item.model_dump(exclude_none=True) for item in response.output]


def streamed_response(client, request):
    """Takes the items as they end; the last event must list the same calls, or a client that reads it would run others."""
    items, last = [], None
    for event in client.responses.create(**request, stream=True):
        if event.type == "response.output_item.done":
            items.append(event.item.model_dump(exclude_none=True))
        elif event.type in ("response.completed", "response.incomplete", "response.failed"):
            last = event.response
        elif event.type == "error":
            raise RuntimeError(event.message)
    if last is None:
        raise RuntimeError("the stream has no last event")
    if last.status == "failed":
        raise RuntimeError(str(last.error))
    ended, listed = [[(item["name"], item["arguments"]) for item in some if item["type"] == "function_call"]
                     for some in (items, [item.model_dump(exclude_none=True) for item in last.output])]
    if ended != listed and listed:
        raise RuntimeError(f"items ended: {ended}; the last event lists: {listed}")
    return last.id, items


serve(converse)
