// The OpenAI Agents SDK as shipped, on the Responses API: a tool loop with parallel calls, or a model that never stops
// calling. Whole and streamed.
import assert from "node:assert/strict";
import { Agent, run, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";

setTracingDisabled(true);
const made = [];
const weather = tool({
  name: "weather",
  description: "The weather in a city",
  parameters: z.object({ city: z.string() }),
  execute: ({ city }) => (made.push(city), `clear in ${city}`),
});
const search = tool({ name: "search", description: "Searches", parameters: z.object({}), execute: () => "nothing found" });

const [scenario, form] = process.argv[2].split("-");
const [used, question] = scenario === "tools" ? [weather, "What is the weather in Rome, Oslo and Bern?"] : [search, "Find it."];
const modelSettings = { store: false };
const agent = new Agent({ name: "Assistant", instructions: "Be brief.", tools: [used], model: "gpt-scripted", modelSettings });
const stream = form === "streamed";
const result = await run(agent, question, { maxTurns: 60, stream });
if (stream) {
  for await (const _ of result);
  await result.completed;
}
assert.ok(result.finalOutput, "a final text");
if (scenario === "tools") {
  assert.equal(result.finalOutput, "Clear everywhere.");
  assert.deepEqual([made[0], ...made.slice(1).sort()], ["Rome", "Bern", "Oslo"]);
}
console.log(`ended with: ${result.finalOutput}`);
