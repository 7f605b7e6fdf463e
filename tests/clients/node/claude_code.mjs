// Claude Code from its package in print mode, with the tools of `messages_plays.mjs` and none of its own, whose effects are no part
// of the tests. Plays with the same URL, model and session are turns of one conversation in one process. Claude Code streams.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { MOST_REQUESTS, SCHEMAS, playAll } from "./messages_plays.mjs";

const fileOf = (name) => fileURLToPath(new URL(name, import.meta.url));
const root = mkdtempSync(join(tmpdir(), "claude-code-"));
const NAMES = Object.keys(SCHEMAS);
const toolName = (name) => `mcp__tools__${name}`;

// Nothing but the base URL is to be reached: any other request goes to a closed port.
const nowhere = "http://127.0.0.1:9";
const proxies = { HTTP_PROXY: nowhere, HTTPS_PROXY: nowhere, ALL_PROXY: nowhere, NO_PROXY: "127.0.0.1" };
const quiet = { CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1", CLAUDE_CODE_MAX_RETRIES: "0" };

// A conversation, which ends with its process.
class Session {
  constructor({ url, model }, number) {
    const folder = join(root, String(number));
    const [home, work] = [join(folder, "home"), join(folder, "work")];
    for (const directory of [home, work]) mkdirSync(directory, { recursive: true });
    this.calls = join(folder, "calls");
    writeFileSync(this.calls, "");
    const server = { command: process.execPath, args: [fileOf("messages_tools.mjs"), this.calls] };
    const options = ["-p", "--model", model, "--verbose", "--input-format", "stream-json", "--output-format", "stream-json"];
    options.push("--mcp-config", JSON.stringify({ mcpServers: { tools: server } }), "--strict-mcp-config");
    options.push("--max-turns", String(MOST_REQUESTS), "--tools", "", "--allowedTools", NAMES.map(toolName).join(","));
    const key = { ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: "sk-ant-test", ENABLE_TOOL_SEARCH: "false" };
    const env = { PATH: process.env.PATH, HOME: home, CLAUDE_CONFIG_DIR: join(home, ".claude"), ...key, ...quiet, ...proxies };
    const claude = fileOf("node_modules/@anthropic-ai/claude-code/bin/claude.exe");
    this.process = spawn(claude, options, { cwd: work, env, stdio: ["pipe", "pipe", "ignore"] });
    this.lines = createInterface({ input: this.process.stdout })[Symbol.asyncIterator]();
  }

  // The result of a turn.
  async say(text) {
    const content = NAMES.reduce((said, name) => said.replaceAll(name, toolName(name)), text);
    this.process.stdin.write(`${JSON.stringify({ type: "user", message: { role: "user", content } })}\n`);
    for (;;) {
      const { value, done } = await this.lines.next();
      if (done) throw new Error("Claude Code ended");
      const event = JSON.parse(value);
      if (event.type === "result") return event;
    }
  }

  // The calls that the tools' server ran so far.
  ran() {
    return readFileSync(this.calls, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
  }
}

const sessions = new Map();

async function turn(play, tools) {
  const key = JSON.stringify([play.url, play.model, play.session]);
  if (!sessions.has(key)) sessions.set(key, new Session(play, sessions.size));
  const session = sessions.get(key);
  const before = session.ran().length;
  try {
    const { is_error, result, errors } = await session.say(play.says);
    if (is_error) throw new Error(result ?? errors.join("; "));
    return result;
  } finally {
    tools.ran = session.ran().slice(before);
  }
}

await playAll({ print: turn });
const ended = [...sessions.values()].map((session) => new Promise((resolve) => session.process.on("exit", resolve)));
for (const session of sessions.values()) session.process.stdin.end();
await Promise.all(ended);
rmSync(root, { recursive: true });
