// Requests to the admin API of the server that served this page. Every request has a timeout.

import { session } from "./session.js";

const TIMEOUT_MS = 15_000;

/** Why a request failed: `offline`, `unauthorized`, `absent` (no such page or no token configured) or `refused`. */
export class ApiError extends Error {
  constructor(kind, message, status = 0) {
    super(message);
    this.kind = kind;
    this.status = status;
  }
}

/** The headers of a request of this session. */
export function headers(extra = {}) {
  return session.isSignedIn ? { ...extra, authorization: `Bearer ${session.token}` } : extra;
}

async function send(path, options, signal) {
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  try {
    return await fetch(path, {
      ...options,
      cache: "no-store",
      mode: "same-origin",
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const why = timeout.aborted ? "toolrein did not answer within 15 seconds." : "toolrein does not answer.";
    throw new ApiError("offline", why);
  }
}

/** The failure that a status and its body mean. */
export async function failure(response) {
  const body = await response.json().catch(() => null);
  const message = body?.error?.message;
  if (response.status === 401) return new ApiError("unauthorized", "The token was not accepted.", 401);
  if (response.status === 404) return new ApiError("absent", message || "There is nothing at this address.", 404);
  return new ApiError("refused", message || `toolrein answered with status ${response.status}.`, response.status);
}

async function checked(path, options, signal) {
  const response = await send(path, options, signal);
  if (!response.ok) throw await failure(response);
  return response;
}

/** The JSON at a path. */
export async function get(path, signal) {
  const response = await checked(path, { headers: headers({ accept: "application/json" }) }, signal);
  return response.json().catch(() => {
    throw new ApiError("refused", "toolrein's answer is not JSON.");
  });
}

/** The text at a path. */
export async function getText(path, signal) {
  return (await checked(path, { headers: headers() }, signal)).text();
}

/** Changes something, and returns what was answered. */
export async function change(method, path, body) {
  const options = body === undefined
    ? { method, headers: headers() }
    : { method, headers: headers({ "content-type": "application/json" }), body: JSON.stringify(body) };
  const response = await checked(path, options);
  return response.json().catch(() => ({}));
}

/** Where the API of one conversation is. */
export function conversationPath(id, rest = "") {
  return `api/conversations/${encodeURIComponent(id)}${rest}`;
}
