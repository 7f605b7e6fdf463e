// A whole text reply: content, finish reason, usage and the request id reach the program.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const { data: reply, response } = await client.chat.completions
  .create({ model: "gpt-scripted", messages: [{ role: "user", content: "Where? \u2028 \u{1f600}" }], temperature: 0.1 })
  .withResponse();
assert.equal(reply.choices[0].message.content, "It is in Zürich.");
assert.equal(reply.choices[0].finish_reason, "stop");
assert.equal(reply.usage.total_tokens, 25);
assert.equal(response.headers.get("x-request-id"), "req_1");
assert.deepEqual(response.headers.getSetCookie(), ["a=1", "b=2"]);
