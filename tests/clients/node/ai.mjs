// The AI SDK with its default API of OpenAI, the Responses API: a tool loop with parallel calls, or a model that never
// stops calling. Whole and streamed.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const made = [];
const weather = tool({
  description: "The weather in a city",
  inputSchema: z.object({ city: z.string() }),
  execute: ({ city }) => (made.push(city), `clear in ${city}`),
});
const search = tool({ description: "Searches", inputSchema: z.object({}), execute: () => "nothing found" });

const [scenario, form] = process.argv[2].split("-");
const [tools, prompt] =
  scenario === "tools" ? [{ weather }, "What is the weather in Rome, Oslo and Bern?"] : [{ search }, "Find it."];
const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL });
const providerOptions = { openai: { store: false } };
const ask = { model: openai("gpt-scripted"), tools, prompt, stopWhen: stepCountIs(60), maxRetries: 0, providerOptions };
const text = form === "streamed" ? await streamText(ask).text : (await generateText(ask)).text;
assert.ok(text, "a final text");
if (scenario === "tools") {
  assert.equal(text, "Clear everywhere.");
  assert.deepEqual([made[0], ...made.slice(1).sort()], ["Rome", "Bern", "Oslo"]);
}
console.log(`ended with: ${text}`);
