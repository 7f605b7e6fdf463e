"""A whole text reply: content, finish reason, usage and the request id reach the program."""

from openai import OpenAI

client = OpenAI(max_retries=0)
raw = client.chat.completions.with_raw_response.create(
    model="gpt-scripted", messages=[{"role": "user", "content": "Where? \u2028 \U0001f600"}], seed=-9223372036854775808
)
reply = raw.parse()
assert reply.choices[0].message.content == "It is in Zürich.", reply
assert reply.choices[0].finish_reason == "stop", reply
assert reply.usage.total_tokens == 25, reply
assert raw.headers["x-request-id"] == "req_1", raw.headers
assert raw.headers.get_list("set-cookie") == ["a=1", "b=2"], raw.headers
