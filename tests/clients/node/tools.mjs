// A tool loop until the model answers with text: one call, then two at once, then the answer. Whole, streamed, with
// the stream helper and with the package's own runner.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { turns } from "./turns.mjs";

const client = new OpenAI({ maxRetries: 0 });
const question = { role: "user", content: "What is the weather in Rome, Oslo and Bern?" };
const weather = {
  name: "weather",
  description: "The weather in a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const made = [];

function look(args) {
  made.push(args);
  return JSON.stringify({ city: JSON.parse(args).city, sky: "clear" });
}

async function loop(turn) {
  const messages = [question];
  for (;;) {
    const tools = [{ type: "function", function: weather }];
    const message = await turn({ model: "gpt-scripted", messages, tools });
    assert.equal(message.role, "assistant");
    if (!message.tool_calls?.length) return message.content;
    messages.push(message);
    for (const call of message.tool_calls) {
      assert.equal(call.function.name, "weather");
      messages.push({ role: "tool", tool_call_id: call.id, content: look(call.function.arguments) });
    }
  }
}

function run() {
  const tools = [{ type: "function", function: { ...weather, function: look } }];
  return client.chat.completions.runTools({ model: "gpt-scripted", messages: [question], tools }).finalContent();
}

const form = process.argv[2];
const text = await (form === "runner" ? run() : loop(turns(client)[form]));
assert.equal(text, "Clear everywhere.");
assert.deepEqual(made, ['{"city":"Rome"}', '{"city":"Oslo"}', '{"city":"Bern"}']);
