// A conversation by a plan that is read from the input: what the user says, which tools there are and what they
// answer. Whole or streamed. Prints the conversation at its end and the calls that were run.
import { readFileSync } from "node:fs";
import OpenAI from "openai";
import { turns } from "./turns.mjs";

const { profile, tools, results, says, messages } = JSON.parse(readFileSync(0, "utf8"));
const defaultHeaders = profile ? { "x-toolrein-profile": profile } : {};
const client = new OpenAI({ maxRetries: 0, defaultHeaders });
const ran = [];

const turn = turns(client)[process.argv[2]];

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
