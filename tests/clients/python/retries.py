"""The package's own retries, after the refusals that it retries: the program sees the answer alone."""

from openai import OpenAI

reply = OpenAI().chat.completions.create(model="gpt-scripted", messages=[{"role": "user", "content": "q"}])
assert reply.choices[0].message.content == "at last", reply
