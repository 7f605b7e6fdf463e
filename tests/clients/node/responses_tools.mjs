// A tool loop on the Responses API until the model answers with text: one call, then two at once, then the answer.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { loop, turns } from "./responses_turns.mjs";

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const tools = [{ type: "function", name: "weather", description: "The weather", parameters, strict: true }];
const made = [];

function run({ arguments: args }) {
  made.push(args);
  return JSON.stringify({ city: JSON.parse(args).city, sky: "clear" });
}

const turn = turns(new OpenAI({ maxRetries: 0 }))[process.argv[2]];
const ask = { model: "gpt-scripted", input: "What is the weather in Rome, Oslo and Bern?", tools, store: false };
assert.equal(await loop(turn, ask, run), "Clear everywhere.");
assert.deepEqual(made, ['{"city":"Rome"}', '{"city":"Oslo"}', '{"city":"Bern"}']);
