// The `@anthropic-ai/sdk` package: raw iteration of the events, whole replies, the stream helper, and the tool runner with
// threads, its default, and without.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { DESCRIPTIONS, MOST_REQUESTS, SCHEMAS, playAll } from "./messages_plays.mjs";

const NAMES = Object.keys(SCHEMAS);
const TOOLS = NAMES.map((name) => ({ name, description: DESCRIPTIONS[name], input_schema: SCHEMAS[name] }));

const clientOf = ({ url }) => new Anthropic({ baseURL: url, apiKey: "sk-ant-test", maxRetries: 0 });
const requestOf = ({ model, says }) => {
  return { model, max_tokens: 4096, thinking: { type: "adaptive" }, messages: [{ role: "user", content: says }] };
};

// Puts the blocks together from the events, each under its index.
async function raw(client, ask) {
  const [blocks, pieces] = [{}, {}];
  for await (const event of await client.messages.create({ ...ask, stream: true })) {
    const { index } = event;
    if (event.type === "content_block_start") {
      [blocks[index], pieces[index]] = [event.content_block, ""];
    } else if (event.type === "content_block_delta") {
      const { type, text, thinking, signature, partial_json } = event.delta;
      if (type === "text_delta") blocks[index].text += text;
      if (type === "thinking_delta") blocks[index].thinking += thinking;
      if (type === "signature_delta") blocks[index].signature = signature;
      if (type === "input_json_delta") pieces[index] += partial_json;
    } else if (event.type === "content_block_stop" && pieces[index]) {
      blocks[index].input = JSON.parse(pieces[index]);
    }
  }
  return Object.values(blocks);
}

const whole = async (client, ask) => (await client.messages.create(ask)).content;
const helper = async (client, ask) => (await client.messages.stream(ask).finalMessage()).content;

// The texts of a reply in one.
const textOf = (content) => content.map((block) => block.text ?? "").join("");

// An agent that runs the calls of a reply itself.
const looped = (turn) => async (play, tools) => {
  const [client, ask] = [clientOf(play), requestOf(play)];
  for (let step = 0; step < MOST_REQUESTS; step += 1) {
    const content = await turn(client, { ...ask, tools: TOOLS });
    ask.messages.push({ role: "assistant", content });
    const calls = content.filter((block) => block.type === "tool_use");
    if (!calls.length) return textOf(content);
    const results = calls.map(({ id, name, input }) => {
      return { type: "tool_result", tool_use_id: id, content: tools.run(name, input) };
    });
    ask.messages.push({ role: "user", content: results });
  }
  return assert.fail(`${MOST_REQUESTS} replies, and no end`);
};

// The package's own loop.
const runner = (options) => async (play, tools) => {
  const used = NAMES.map((name) => {
    return betaTool({ name, description: DESCRIPTIONS[name], inputSchema: SCHEMAS[name], run: (input) => tools.run(name, input) });
  });
  const ask = { ...requestOf(play), tools: used, max_iterations: MOST_REQUESTS, ...options };
  const { content } = await clientOf(play).beta.messages.toolRunner(ask).runUntilDone();
  assert.ok(!content.some((block) => block.type === "tool_use"), "a call in the final message");
  return textOf(content);
};

await playAll({
  raw: looped(raw),
  whole: looped(whole),
  helper: looped(helper),
  runner: runner({}),
  "streamed runner": runner({ stream: true }),
  "runner without threads": runner({ thread: false }),
});
