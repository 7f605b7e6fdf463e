// A conversation by a plan that is read from the input: what the user says, which tools there are and what they
// answer. Whole or streamed. Prints the conversation at its end and the calls that were run.
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const { profile, tools, results, says, messages } = JSON.parse(readFileSync(0, "utf8"));
const client = new OpenAI({ maxRetries: 0, defaultHeaders: { "x-toolrein-profile": profile } });
const ran = [];

async function streamed(ask) {
  let content = "";
  const calls = [];
  for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) {
    const delta = chunk.choices[0].delta;
    content += delta.content ?? "";
    for (const part of delta.tool_calls ?? []) {
      const call = (calls[part.index] ??= { id: part.id, type: "function", function: { name: "", arguments: "" } });
      call.function.name += part.function.name ?? "";
      call.function.arguments += part.function.arguments ?? "";
    }
  }
  return calls.length ? { role: "assistant", content: null, tool_calls: calls } : { role: "assistant", content };
}

const turn = {
  whole: async (ask) => (await client.chat.completions.create(ask)).choices[0].message,
  streamed,
}[process.argv[2]];

// The next of the answers that the plan has for the tool; each stands in it as often as it is called.
function run({ id, function: { name, arguments: args } }) {
  ran.push([name, JSON.parse(args)]);
  return { role: "tool", tool_call_id: id, content: results[name].shift() };
}

for (const said of says) {
  messages.push({ role: "user", content: said });
  for (;;) {
    const message = await turn({ model: "gpt-4o", messages, tools });
    messages.push(message);
    if (!message.tool_calls?.length) break;
    messages.push(...message.tool_calls.map(run));
  }
}
console.log(JSON.stringify({ messages, ran }));
