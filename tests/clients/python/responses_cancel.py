"""Giving up on the Responses API closes the connection while the program lives on."""

import sys

import openai

client = openai.OpenAI(max_retries=0)
if sys.argv[1] == "streamed":
    with client.responses.create(model="gpt-scripted", input="q", stream=True) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                break
else:
    try:
        client.responses.create(model="gpt-scripted", input="q", timeout=0.5)
    except openai.APITimeoutError:
        pass
    else:
        raise AssertionError("there was an answer")
# The test closes our input once the upstream has seen the hang-up: it was not the end of this process.
sys.stdin.read()
