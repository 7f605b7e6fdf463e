// LangChain's chat model of the Messages API in a loop of its own. Whole and streamed.
import assert from "node:assert/strict";
import { ChatAnthropic } from "@langchain/anthropic";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { DESCRIPTIONS, MOST_REQUESTS, SCHEMAS, playAll } from "./messages_plays.mjs";

const TOOLS = Object.keys(SCHEMAS).map((name) => ({ name, description: DESCRIPTIONS[name], input_schema: SCHEMAS[name] }));

async function streamed(model, messages) {
  let reply;
  for await (const chunk of await model.stream(messages)) reply = reply ? reply.concat(chunk) : chunk;
  return reply;
}

const agent = (turn) => async ({ url, model: name, says }, tools) => {
  const options = { model: name, anthropicApiUrl: url, apiKey: "sk-ant-test", maxRetries: 0, maxTokens: 4096 };
  const model = new ChatAnthropic({ ...options, thinking: { type: "adaptive" } }).bindTools(TOOLS);
  const messages = [new HumanMessage(says)];
  for (let step = 0; step < MOST_REQUESTS; step += 1) {
    const reply = await turn(model, messages);
    messages.push(reply);
    if (!reply.tool_calls?.length) return reply.text;
    for (const call of reply.tool_calls) {
      messages.push(new ToolMessage({ content: tools.run(call.name, call.args), tool_call_id: call.id }));
    }
  }
  return assert.fail(`${MOST_REQUESTS} replies, and no end`);
};

await playAll({ whole: agent((model, messages) => model.invoke(messages)), streamed: agent(streamed) });
