"""A streamed text reply, by the blocking, the asynchronous and the helper interface; usage comes where asked for."""

import asyncio

from openai import AsyncOpenAI, OpenAI

ASK = {"model": "gpt-scripted", "messages": [{"role": "user", "content": "Where?"}]}
TEXT = "It is in Zürich."


def blocking():
    text, usage = "", None
    for chunk in OpenAI(max_retries=0).chat.completions.create(
        **ASK, stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == TEXT, text
    assert usage.total_tokens == 25, usage


async def asynchronous():
    text = ""
    async with AsyncOpenAI(max_retries=0) as client:
        async for chunk in await client.chat.completions.create(**ASK, stream=True):
            assert chunk.usage is None and chunk.choices, chunk
            text += chunk.choices[0].delta.content or ""
    assert text == TEXT, text


def helper():
    with OpenAI(max_retries=0).chat.completions.stream(**ASK) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == TEXT, deltas
    message = final.choices[0].message
    assert (message.role, message.content) == ("assistant", TEXT), final


blocking()
asyncio.run(asynchronous())
helper()
