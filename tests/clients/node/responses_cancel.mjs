// Giving up on the Responses API closes the connection while the program lives on.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const ask = { model: "gpt-scripted", input: "q" };
if (process.argv[2] === "streamed") {
  for await (const event of await client.responses.create({ ...ask, stream: true })) {
    if (event.type === "response.output_text.delta") break;
  }
} else {
  await assert.rejects(client.responses.create(ask, { timeout: 500 }), OpenAI.APIConnectionTimeoutError);
}
// The test closes our input once the upstream has seen the hang-up: it was not the end of this process.
for await (const _ of process.stdin);
