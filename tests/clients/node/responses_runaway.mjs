// An agent on the Responses API without a limit of its own, and a model that asks for the same tool for ever: it ends
// with text, by whichever interface, and nothing raises.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { loop, turns } from "./responses_turns.mjs";

const parameters = { type: "object", properties: {}, required: [], additionalProperties: false };
const tools = [{ type: "function", name: "search", parameters, strict: true }];
const turn = turns(new OpenAI({ maxRetries: 0 }))[process.argv[2]];
const text = await loop(turn, { model: "gpt-scripted", input: "Find it.", tools }, () => "nothing found");
assert.ok(text, "a final text");
console.log(`ended with: ${text}`);
