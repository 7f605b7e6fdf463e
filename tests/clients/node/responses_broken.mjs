// A stream of the Responses API that the upstream breaks off never looks complete, and its error events raise.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });

async function heard(model) {
  let text = "";
  try {
    for await (const event of await client.responses.create({ model, input: "q", stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
      assert.notEqual(event.type, "response.completed");
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
assert.match(error.message, /the model fell over/);
