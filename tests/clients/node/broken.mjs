// A stream that the upstream breaks off, or ends with an error event, raises; it never looks complete.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });

async function heard(model) {
  let text = "";
  try {
    const ask = { model, messages: [{ role: "user", content: "q" }], stream: true };
    for await (const chunk of await client.chat.completions.create(ask)) {
      text += chunk.choices[0]?.delta?.content ?? "";
    }
  } catch (error) {
    return [text, error];
  }
  assert.fail(`${model}: the broken stream ended as if whole, after ${text}`);
}

const [cut] = await heard("cut");
assert.equal(cut, "one ");
const [text, error] = await heard("error-event");
assert.equal(text, "one ");
assert.ok(error instanceof OpenAI.APIError, String(error));
assert.match(error.message, /the model fell over/);
