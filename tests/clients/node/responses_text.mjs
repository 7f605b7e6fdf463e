// A text reply of the Responses API: whole, streamed by hand and by the stream helper.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const ask = { model: "gpt-scripted", input: "Where? \u2028 \u{1f600}" };
const expected = "It is in Zürich.";

if (process.argv[2] === "whole") {
  const { data: reply, response } = await client.responses.create(ask).withResponse();
  assert.deepEqual([reply.output_text, reply.status, reply.id], [expected, "completed", "resp_0"]);
  assert.equal(reply.usage.total_tokens, 25);
  assert.equal(response.headers.get("x-request-id"), "req_1");
} else {
  let [text, last] = ["", null];
  for await (last of await client.responses.create({ ...ask, stream: true })) {
    if (last.type === "response.output_text.delta") text += last.delta;
  }
  assert.equal(text, expected);
  assert.deepEqual([last.type, last.response.usage.total_tokens], ["response.completed", 25]);
  const deltas = [];
  const stream = client.responses.stream(ask).on("response.output_text.delta", ({ delta }) => deltas.push(delta));
  const final = await stream.finalResponse();
  assert.deepEqual([deltas.join(""), final.output_text], [expected, expected]);
}
