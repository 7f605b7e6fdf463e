// Giving up closes the connection while the program lives on: in the middle of a stream, or before any answer.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const ask = { model: "gpt-scripted", messages: [{ role: "user", content: "q" }] };
if (process.argv[2] === "streamed") {
  const stream = await client.chat.completions.create({ ...ask, stream: true });
  for await (const chunk of stream) {
    if (chunk.choices[0].delta.content === "one ") break;
  }
} else {
  const timeout = client.chat.completions.create(ask, { timeout: 500 });
  await assert.rejects(timeout, OpenAI.APIConnectionTimeoutError);
}
// The test closes our input once the upstream has seen the hang-up: it was not the end of this process.
for await (const _ of process.stdin);
