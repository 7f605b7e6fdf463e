// The AI SDK with its provider of the Messages API. Whole and streamed.
import { createAnthropic } from "@ai-sdk/anthropic";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { DESCRIPTIONS, MOST_REQUESTS, SCHEMAS, playAll } from "./messages_plays.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const requestOf = ({ url, model, says }, tools) => {
  const used = Object.entries(SCHEMAS).map(([name, schema]) => {
    const execute = (input) => tools.run(name, input);
    return [name, tool({ description: DESCRIPTIONS[name], inputSchema: jsonSchema(schema), execute })];
  });
  return {
    model: createAnthropic({ baseURL: `${url}/v1`, apiKey: "sk-ant-test" })(model),
    tools: Object.fromEntries(used),
    prompt: says,
    maxOutputTokens: 4096,
    stopWhen: stepCountIs(MOST_REQUESTS),
    maxRetries: 0,
    providerOptions: { anthropic: { thinking: { type: "adaptive" } } },
  };
};

async function streamed(play, tools) {
  let failure;
  const run = streamText({ ...requestOf(play, tools), onError: ({ error }) => (failure = error) });
  await run.consumeStream();
  if (failure) throw failure;
  return run.text;
}

await playAll({ whole: async (play, tools) => (await generateText(requestOf(play, tools))).text, streamed });
