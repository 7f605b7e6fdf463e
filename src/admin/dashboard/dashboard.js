// The frame of the page: the views, what is shown when data is missing, and when data is loaded again. With the token,
// the event stream says when something changed; without it the public numbers are loaded every few seconds.

import { announce, announceEvent } from "./announcer.js";
import { ApiError, get } from "./api.js";
import { h, replace, setText } from "./dom.js";
import { followEvents } from "./events.js";
import { duration, number, time } from "./format.js";
import { icon } from "./icons.js";
import { state } from "./parts.js";
import { currentRoute } from "./router.js";
import { session, takeTokenFromAddress } from "./session.js";
import { approvals } from "./views/approvals.js";
import { conversation } from "./views/conversation.js";
import { conversations } from "./views/conversations.js";
import { health } from "./views/health.js";
import { limits } from "./views/limits.js";
import { overview } from "./views/overview.js";
import { savings } from "./views/savings.js";
import { NO_TOKEN, signIn } from "./views/sign_in.js";
import { tools } from "./views/tools.js";

const VIEWS = [overview, tools, limits, conversations, approvals, savings, health];
const POLL_MS = 5_000;
const POLL_LIVE_MS = 15_000;
/** After an event, data is loaded at most this often. */
const PAUSE_MS = 1_000;
const MOST_RECENT = 60;

const byId = (id) => document.getElementById(id);
const links = new Map();
const recent = [];
let shown = null;
let stream = null;
let isLive = false;
let poll = null;
let soon = null;
let loadedAt = 0;
let skew = 0;

/** What a view may use of the frame. */
const context = {
  recent,
  now: () => Date.now() + skew,
  refresh: () => refresh(),
  announce,
  /** Changes the address without an entry in the history, as for what is typed into a filter. */
  go: (hash) => location.replace(hash),
  signedIn,
};

function start() {
  takeTokenFromAddress();
  const list = h("ul", {}, VIEWS.map((view) => {
    const badge = h("span", { class: "badge", hidden: true });
    const link = h("a", { href: `#/${view.name}` }, icon(view.name), h("span", {}, view.title), badge);
    links.set(view.name, { link, badge });
    return h("li", {}, link);
  }));
  byId("views").append(list);
  const scheme = byId("scheme");
  scheme.value = window.toolreinScheme.get();
  const changed = () => dispatchEvent(new Event("schemechange"));
  scheme.addEventListener("change", () => (window.toolreinScheme.set(scheme.value), changed()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  byId("skip").addEventListener("click", (event) => (event.preventDefault(), byId("main").focus()));
  byId("sign").addEventListener("click", (event) => session.isSignedIn && (event.preventDefault(), signOut()));
  addEventListener("hashchange", () => (takeTokenFromAddress(), follow(), open()));
  addEventListener("online", () => refresh());
  addEventListener("offline", () => fail(new ApiError("offline", "This computer is offline.")));
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
  setInterval(() => shown?.instance?.tick?.(), 1_000);
  follow();
  open();
}

function viewOf(route) {
  if (route.name === "sign-in") return signIn;
  if (route.name === "conversations" && route.id) return conversation;
  return VIEWS.find((view) => view.name === route.name) ?? overview;
}

/** Shows the view of the address. A change of its parameters alone keeps the view and what is typed in it. */
function open() {
  const route = currentRoute();
  const view = viewOf(route);
  const isSame = shown && shown.view === view && shown.route.id === route.id && !shown.isReplaced;
  if (isSame) {
    const isOtherPage = shown.route.params.get("page") !== route.params.get("page");
    shown.route = route;
    if (isOtherPage) scrollTo(0, 0);
    refresh();
    return;
  }
  const isFirst = shown === null;
  shown?.instance?.close?.();
  shown?.abort.abort();
  shown = { view, route, abort: new AbortController(), instance: null, hasData: false, isReplaced: false };
  const title = view === conversation ? route.id : view.title;
  setText(byId("title"), title);
  setTitle(0);
  for (const [name, { link }] of links) {
    if (name === route.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  reveal(route);
  byId("banner").hidden = true;
  if (view.isPrivate && !session.isSignedIn) instead(signIn.create(context, { ...route, why: view.why }).element);
  else {
    shown.instance = view.create(context, route);
    byId("view").replaceChildren(state("Loading", "The numbers are on their way."));
  }
  if (!isFirst) {
    scrollTo(0, 0);
    byId("main").focus({ preventScroll: true });
  }
  refresh();
}

/** The title of the tab, with the approvals that wait, so that a tab in the background shows them. */
function setTitle(waiting) {
  document.title = `${waiting > 0 ? `(${number(waiting)}) ` : ""}${byId("title").textContent} · toolrein`;
}

/** Scrolls the strip of views, where it is narrow, to the one that is shown. */
function reveal(route) {
  links.get(route.name)?.link.scrollIntoView({ block: "nearest", inline: "center" });
}

/** Shows something in place of the view until it is opened anew. */
function instead(element) {
  shown.isReplaced = true;
  shown.instance?.close?.();
  shown.instance = null;
  byId("view").replaceChildren(element);
}

async function refresh() {
  const now = shown;
  if (!now || now.isLoading) {
    if (now) now.isAgain = true;
    return;
  }
  now.isLoading = true;
  clearTimeout(poll);
  clearTimeout(soon);
  soon = null;
  const { signal } = now.abort;
  try {
    const loading = now.instance?.load?.(signal, now.route.params);
    const [summary, data] = await Promise.all([get("api/overview", signal), loading]);
    if (now === shown) show(now, summary, data);
  } catch (error) {
    if (now === shown && !signal.aborted) fail(error);
  }
  now.isLoading = false;
  if (now !== shown) return;
  poll = setTimeout(() => document.hidden || refresh(), isLive ? POLL_LIVE_MS : POLL_MS);
  if (now.isAgain) {
    now.isAgain = false;
    changedSoon();
  }
}

/** Loads again, but not more often than once a second; in the background for approvals only. */
function changedSoon(event) {
  if (document.hidden && event?.event !== "approval") return;
  soon ??= setTimeout(() => (soon = null, refresh()), Math.max(0, loadedAt + PAUSE_MS - Date.now()));
}

function show(now, summary, data) {
  loadedAt = Date.now();
  skew = Number.isFinite(summary.now_ms) ? summary.now_ms - loadedAt : 0;
  byId("banner").hidden = true;
  const facts = [summary.version && `version ${summary.version}`, summary.mode && `mode ${summary.mode}`,
    summary.started_ms && `up ${duration(context.now() - summary.started_ms)}`];
  setText(byId("facts"), facts.filter(Boolean).join(" · "));
  byId("facts").dataset.mode = summary.mode ?? "";
  const { badge } = links.get("approvals");
  const wasHidden = badge.hidden;
  badge.hidden = !summary.approvals_pending;
  replace(badge, summary.approvals_pending, () => [document.createTextNode(number(summary.approvals_pending)), h("span", { class: "hidden" }, " waiting")]);
  if (wasHidden !== badge.hidden) reveal(now.route);
  setTitle(summary.approvals_pending);
  if (now.instance) {
    now.instance.show(data, summary);
    if (!now.hasData) byId("view").replaceChildren(now.instance.element);
    now.hasData = true;
  }
  if (!session.isSignedIn) connection("public", "Every 5 s");
  else if (isLive) connection("live", "Live");
}

function fail(error) {
  const kind = error instanceof ApiError ? error.kind : "broken";
  if (kind === "unauthorized") {
    signOut("The token was not accepted. Perhaps it was changed: sign in with the new one.");
    return;
  }
  if (kind === "broken") console.error(error);
  if (kind === "offline") connection("offline", "Offline");
  const again = h("button", { type: "button", onclick: () => (shown.isReplaced ? open() : refresh()) }, "Try again");
  const texts = {
    offline: ["toolrein does not answer", `${error.message} The page tries again every few seconds.`],
    absent: ["There is nothing here", shown.view.isPrivate && shown.view !== conversation ? NO_TOKEN : error.message],
    refused: ["toolrein refused", error.message],
    broken: ["Something is wrong with this page", String(error.message ?? error)],
  };
  const [title, text] = texts[kind];
  if (shown.instance && !shown.hasData) byId("view").replaceChildren(state(title, text, again));
  else {
    setText(byId("banner"), `${title}. ${loadedAt ? `The numbers are from ${time(loadedAt)}. ` : ""}${text}`);
    byId("banner").hidden = false;
  }
}

function connection(kind, text) {
  byId("link").dataset.state = kind;
  setText(byId("link"), text);
}

/** Follows the events while there is a token. */
function follow() {
  replace(byId("sign"), session.isSignedIn, () => document.createTextNode(session.isSignedIn ? "Sign out" : "Sign in"));
  if (!session.isSignedIn) {
    stream?.close();
    stream = null;
    isLive = false;
    return;
  }
  stream ??= followEvents({ onEvent, onState });
}

function onState(kind, wait) {
  isLive = kind === "live";
  if (kind === "live") connection("live", "Live");
  if (kind === "connecting" && byId("link").dataset.state !== "live") connection("connecting", "Connecting");
  if (kind === "waiting") connection("offline", `Again in ${duration(wait)}`);
  if (kind === "unauthorized") signOut("The token was not accepted. Perhaps it was changed: sign in with the new one.");
  if (kind === "live") changedSoon();
}

function onEvent(event) {
  recent.unshift(event);
  recent.length = Math.min(recent.length, MOST_RECENT);
  announceEvent(event);
  shown?.instance?.event?.(event);
  changedSoon(event);
}

function signedIn(hash) {
  follow();
  announce("Signed in.");
  shown = { ...shown, isReplaced: true };
  if (location.hash === hash) open();
  else location.hash = hash;
}

function signOut(why) {
  session.signOut();
  recent.length = 0;
  follow();
  connection("public", "Every 5 s");
  announce(why ?? "Signed out.");
  if (why) instead(signIn.create(context, { ...shown.route, why }).element);
  else {
    shown.isReplaced = true;
    open();
  }
}

start();
