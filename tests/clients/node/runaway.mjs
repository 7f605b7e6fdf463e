// An agent without a limit of its own, and a model that asks for the same tool for ever: it ends with text, by
// whichever interface, and nothing raises.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const question = { role: "user", content: "Find it." };
const search = { name: "search", parameters: { type: "object", properties: {} } };

async function streamed(ask) {
  let content = "";
  const calls = [];
  for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) {
    const delta = chunk.choices[0]?.delta ?? {};
    content += delta.content ?? "";
    for (const part of delta.tool_calls ?? []) {
      const call = (calls[part.index] ??= { id: part.id, type: "function", function: { name: "", arguments: "" } });
      call.function.name += part.function.name ?? "";
      call.function.arguments += part.function.arguments ?? "";
    }
  }
  return calls.length ? { role: "assistant", content, tool_calls: calls } : { role: "assistant", content };
}

const turns = {
  whole: async (ask) => (await client.chat.completions.create(ask)).choices[0].message,
  streamed,
  helper: (ask) => client.chat.completions.stream(ask).finalMessage(),
};

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
const text = await (form === "runner" ? run() : loop(turns[form]));
assert.ok(text, "a final text");
console.log(`ended with: ${text}`);
