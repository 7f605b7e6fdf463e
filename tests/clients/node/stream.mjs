// A streamed text reply, by hand and by the helper; usage comes where asked for.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const ask = { model: "gpt-scripted", messages: [{ role: "user", content: "Where?" }] };

let text = "";
let usage = null;
const options = { stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create({ ...ask, ...options })) {
  usage = chunk.usage ?? usage;
  text += chunk.choices[0]?.delta?.content ?? "";
}
assert.equal(text, "It is in Zürich.");
assert.equal(usage.total_tokens, 25);

const deltas = [];
const stream = client.chat.completions.stream(ask).on("content", (delta) => deltas.push(delta));
const message = await stream.finalMessage();
assert.equal(deltas.join(""), "It is in Zürich.");
assert.equal(message.role, "assistant");
assert.equal(message.content, "It is in Zürich.");
