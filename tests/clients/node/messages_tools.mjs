// A server of tools over MCP, which Claude Code starts: the tools of `messages_plays.mjs`. It adds each call that it runs as a line
// to the file of the first argument.
import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { DESCRIPTIONS, SCHEMAS, Tools } from "./messages_plays.mjs";

const tools = new Tools();
const TOOLS = Object.entries(SCHEMAS).map(([name, inputSchema]) => ({ name, description: DESCRIPTIONS[name], inputSchema }));

function call({ name, arguments: input }) {
  const text = tools.run(name, input);
  appendFileSync(process.argv[2], `${JSON.stringify(tools.ran.at(-1))}\n`);
  return { content: [{ type: "text", text }] };
}

const METHODS = {
  initialize: ({ protocolVersion }) => {
    return { protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "tools", version: "1" } };
  },
  "tools/list": () => ({ tools: TOOLS }),
  "tools/call": call,
  ping: () => ({}),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const answer = METHODS[method] ? { result: METHODS[method](params) } : { error: { code: -32601, message: "unknown method" } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
}
