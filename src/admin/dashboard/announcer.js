// What a screen reader announces. Many changes in a short time become one sentence every ten seconds.

import { count } from "./format.js";

const PAUSE_MS = 10_000;
const region = document.getElementById("announcements");
let blocked = 0;
let approvals = 0;
let timer = null;

/** Announces at once: for what the person just did. */
export function announce(text) {
  region.textContent = text;
}

/** Counts an event of the stream; the sums are announced together. */
export function announceEvent({ event }) {
  if (event === "tool_call_blocked") blocked += 1;
  else if (event === "approval") approvals += 1;
  else return;
  timer ??= setTimeout(say, approvals > 0 ? 500 : PAUSE_MS);
}

function say() {
  const parts = [
    approvals > 0 && `${count(approvals, "change")} of approvals`,
    blocked > 0 && `${count(blocked, "tool call")} blocked`,
  ].filter(Boolean);
  region.textContent = `${parts.join(", ")}.`;
  [blocked, approvals] = [0, 0];
  timer = setTimeout(() => {
    timer = null;
    if (blocked + approvals > 0) say();
  }, PAUSE_MS);
}
