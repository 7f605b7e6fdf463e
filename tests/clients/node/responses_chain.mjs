// The Responses API with the history kept upstream, by `previous_response_id` or in a conversation: a tool loop with
// parallel calls, or a model that never stops calling. Each request sends the new items alone. Whole and streamed.
import assert from "node:assert/strict";
import OpenAI from "openai";

function tool(name, ...required) {
  const properties = Object.fromEntries(required.map((property) => [property, { type: "string" }]));
  const parameters = { type: "object", properties, required, additionalProperties: false };
  return { type: "function", name, parameters, strict: true };
}

const client = new OpenAI({ maxRetries: 0 });
const [scenario, history, form] = process.argv[2].split("-");
const [question, used] = scenario === "tools" ? ["What is the weather?", tool("weather", "city")] : ["Find it.", tool("search")];
let kept = history === "conversation" ? { conversation: (await client.conversations.create({})).id } : {};
const made = [];

let input = [{ role: "user", content: question }];
let response, calls;
for (let step = 0; step < 60; step += 1) {
  const ask = { model: "gpt-scripted", input, tools: [used], ...kept };
  response = form === "whole" ? await client.responses.create(ask) : await client.responses.stream(ask).finalResponse();
  if (history === "previous") kept = { previous_response_id: response.id };
  calls = response.output.filter((item) => item.type === "function_call");
  if (calls.length === 0) break;
  made.push(...calls.map((call) => JSON.parse(call.arguments).city));
  input = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: "nothing found" }));
}
assert.ok(calls.length === 0 && response.output_text, "a final text");
if (scenario === "tools") {
  assert.equal(response.output_text, "Clear everywhere.");
  assert.deepEqual(made, ["Rome", "Oslo", "Bern"]);
}
console.log(`ended with: ${response.output_text}`);
