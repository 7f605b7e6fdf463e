// The event stream of the admin API. EventSource cannot send the token, so the stream is read by fetch. A lost stream is
// opened again after a pause that doubles up to half a minute.

import { failure, headers } from "./api.js";

const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;
/** The server writes at least every 15 seconds. */
const SILENCE_MS = 40_000;
const MOST_BUFFERED = 1_000_000;

/** Splits a stream of server-sent events into `{ event, data }`; data is parsed as JSON where it is. */
export class EventParser {
  buffer = "";

  push(text) {
    this.buffer = (this.buffer + text).replaceAll("\r\n", "\n");
    const blocks = this.buffer.split("\n\n");
    this.buffer = blocks.pop();
    if (this.buffer.length > MOST_BUFFERED) throw new Error("an event is too long");
    return blocks.map(parseBlock).filter(Boolean);
  }
}

function parseBlock(block) {
  let event = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  if (data.length === 0) return null;
  try {
    return { event, data: JSON.parse(data.join("\n")) };
  } catch {
    return null;
  }
}

/**
 * Follows the stream until `close()`. `onState` receives "connecting", "live", "waiting" (with milliseconds until the
 * next try) or "unauthorized", after which nothing more is tried.
 */
export function followEvents({ onEvent, onState }) {
  const closed = new AbortController();
  follow(closed.signal, onEvent, onState);
  return { close: () => closed.abort() };
}

async function follow(signal, onEvent, onState) {
  let pause = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    onState("connecting");
    const outcome = await readOnce(signal, onEvent, () => {
      pause = FIRST_PAUSE_MS;
      onState("live");
    });
    if (signal.aborted) return;
    if (outcome === "unauthorized") {
      onState("unauthorized");
      return;
    }
    const wait = pause * (0.75 + Math.random() / 2);
    onState("waiting", wait);
    await sleep(wait, signal);
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

async function readOnce(signal, onEvent, onOpen) {
  const silent = new AbortController();
  let watchdog = setTimeout(() => silent.abort(), SILENCE_MS);
  try {
    const response = await fetch("api/events", {
      headers: headers({ accept: "text/event-stream" }),
      cache: "no-store",
      mode: "same-origin",
      signal: AbortSignal.any([signal, silent.signal]),
    });
    if (!response.ok) return (await failure(response)).kind;
    onOpen();
    const parser = new EventParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "ended";
      clearTimeout(watchdog);
      watchdog = setTimeout(() => silent.abort(), SILENCE_MS);
      for (const event of parser.push(value)) onEvent(event);
    }
  } catch {
    return "lost";
  } finally {
    clearTimeout(watchdog);
  }
}

/** Waits, but not after the stream was closed or the browser is online again. */
function sleep(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    addEventListener("online", done);
    signal.addEventListener("abort", done);
  });
}
