// Codex from its package, set up by its own configuration file, since it does not read OPENAI_BASE_URL: a tool loop, or
// a model that never stops calling. Codex streams, keeps no history upstream, and tries a WebSocket first.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const scenario = process.argv[2];
const root = mkdtempSync(join(tmpdir(), "codex-"));
const [home, work] = [join(root, "home"), join(root, "work")];
for (const directory of [home, work]) mkdirSync(directory);
writeFileSync(
  join(home, "config.toml"),
  `openai_base_url = "${process.env.OPENAI_BASE_URL}"
model = "gpt-scripted"
check_for_update_on_startup = false
[analytics]
enabled = false
`,
);
// Nothing but the base URL is to be reached: any other request goes to a closed port.
const nowhere = "http://127.0.0.1:9";
const env = { PATH: process.env.PATH, HOME: home, CODEX_HOME: home, CODEX_API_KEY: process.env.OPENAI_API_KEY };
const proxies = { HTTP_PROXY: nowhere, HTTPS_PROXY: nowhere, ALL_PROXY: nowhere, NO_PROXY: "127.0.0.1" };
const codex = fileURLToPath(new URL("node_modules/.bin/codex", import.meta.url));
const question = scenario === "tools" ? "Plan it." : "Go on planning.";
const options = ["exec", "--skip-git-repo-check", "--sandbox", "read-only", "--output-last-message", join(root, "last"), question];
const run = spawnSync(codex, options, { cwd: work, env: { ...env, ...proxies }, encoding: "utf8", input: "" });
rmSync(root, { recursive: true });
assert.equal(run.status, 0, run.stderr);
assert.ok(run.stdout.includes(scenario === "tools" ? "It is planned." : "I could not find it."), run.stdout + run.stderr);
console.log(`ended with: ${run.stdout}`);
