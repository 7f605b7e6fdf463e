// An agent without a limit of its own, and a model that asks for the same tool for ever: it ends with text, by
// whichever interface, and nothing raises.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { turns } from "./turns.mjs";

const client = new OpenAI({ maxRetries: 0 });
const question = { role: "user", content: "Find it." };
const search = { name: "search", parameters: { type: "object", properties: {} } };

async function loop(turn) {
  const messages = [question];
  for (let step = 0; step < 60; step += 1) {
    const message = await turn({ model: "gpt-scripted", messages, tools: [{ type: "function", function: search }] });
    assert.equal(message.role, "assistant");
    if (!message.tool_calls?.length) return message.content;
    messages.push(message);
    for (const call of message.tool_calls) {
      messages.push({ role: "tool", tool_call_id: call.id, content: "nothing found" });
    }
  }
  assert.fail("60 replies, and no end");
}

function run() {
  const tools = [{ type: "function", function: { ...search, function: () => "nothing found" } }];
  const ask = { model: "gpt-scripted", messages: [question], tools };
  return client.chat.completions.runTools(ask, { maxChatCompletions: 60 }).finalContent();
}

const form = process.argv[2];
const text = await (form === "runner" ? run() : loop(turns(client)[form]));
assert.ok(text, "a final text");
console.log(`ended with: ${text}`);
