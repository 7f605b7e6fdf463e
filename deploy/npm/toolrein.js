#!/usr/bin/env node
// Starts the program that npm installed for this platform, passes signals on to it, and ends as it ends.
"use strict";

const { spawn } = require("node:child_process");

const platform = `${process.platform}-${process.arch}`;
const name = process.platform === "win32" ? "toolrein.exe" : "toolrein";

function fail(message) {
  process.stderr.write(`toolrein: ${message}\n`);
  process.exit(1);
}

function find() {
  try {
    return require.resolve(`@toolrein/${platform}/${name}`);
  } catch {
    return fail(
      `the package @toolrein/${platform} is not installed. It has the program for this platform; npm leaves it out ` +
        "with --omit=optional, and there is none for other platforms and, unless the program is static, for musl. " +
        "cargo install toolrein builds it.",
    );
  }
}

const child = spawn(find(), process.argv.slice(2), { stdio: "inherit" });
const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
for (const signal of signals) process.on(signal, () => child.kill(signal));
child.on("error", (error) => fail(error.message));
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  for (const handled of signals) process.removeAllListeners(handled);
  process.kill(process.pid, signal);
});
