"""A text reply of the Responses API: whole, streamed (blocking and asynchronous) and by the stream helper."""

import asyncio
import sys

from openai import AsyncOpenAI, OpenAI

ASK = {"model": "gpt-scripted", "input": "Where? \u2028 \U0001f600"}
TEXT = "It is in Zürich."


def whole():
    raw = OpenAI(max_retries=0).responses.with_raw_response.create(**ASK)
    reply = raw.parse()
    assert (reply.output_text, reply.status, reply.id) == (TEXT, "completed", "resp_0"), reply
    assert reply.usage.total_tokens == 25, reply
    assert raw.headers["x-request-id"] == "req_1", raw.headers


def streamed():
    text, last = "", None
    for last in OpenAI(max_retries=0).responses.create(**ASK, stream=True):
        text += last.delta if last.type == "response.output_text.delta" else ""
    assert text == TEXT, text
    assert (last.type, last.response.usage.total_tokens) == ("response.completed", 25), last


async def asynchronous():
    text = ""
    async with AsyncOpenAI(max_retries=0) as client:
        async for event in await client.responses.create(**ASK, stream=True):
            text += event.delta if event.type == "response.output_text.delta" else ""
    assert text == TEXT, text


def helper():
    with OpenAI(max_retries=0).responses.stream(**ASK) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert ("".join(deltas), final.output_text) == (TEXT, TEXT), final


if sys.argv[1] == "whole":
    whole()
else:
    streamed()
    asyncio.run(asynchronous())
    helper()
