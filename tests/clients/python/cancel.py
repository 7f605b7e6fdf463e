"""Giving up closes the connection while the program lives on: in the middle of a stream, or before any answer."""

import sys

import openai

ask = {"model": "gpt-scripted", "messages": [{"role": "user", "content": "q"}]}
client = openai.OpenAI(max_retries=0)
if sys.argv[1] == "streamed":
    with client.chat.completions.create(**ask, stream=True) as stream:
        for chunk in stream:
            if chunk.choices[0].delta.content == "one ":
                break
else:
    try:
        client.chat.completions.create(**ask, timeout=0.5)
    except openai.APITimeoutError:
        pass
    else:
        raise AssertionError("there was an answer")
# The test closes our input once the upstream has seen the hang-up: it was not the end of this process.
sys.stdin.read()
