// Overview: what toolrein saved and stopped, what it costs, what needs a person and what is not governed.

import { get } from "../api.js";
import { chart } from "../chart.js";
import { h, keyed, replace, setText } from "../dom.js";
import { compact, count, dollars, duration, milliseconds, number, percent, share, time } from "../format.js";
import { bar, figure, panel, verdict } from "../parts.js";
import { conversationLink } from "../router.js";
import { session } from "../session.js";
import { table } from "../table.js";
import { attention } from "./attention.js";

const VERDICTS = ["allow", "modify", "answer", "ask", "block"];
const MOST_EVENTS = 12;
const MINUTE_MS = 60_000;
const SHOWN = { least: 15, most: 60 };

/** Net savings: the number, how it comes about, and what it is compared with. */
export function savingsHero() {
  const value = h("p", { class: "huge" });
  const money = h("p", { class: "money" });
  const strip = h("div", { class: "strip", role: "img" });
  const sum = h("p", { class: "sum" });
  const hold = h("p", { class: "note" });
  const element = panel("Net savings", { wide: true }, h("div", { class: "hero" },
    h("div", {}, value, money), h("div", { class: "balance" }, strip, sum, hold)));
  element.classList.add("savings");
  return {
    element,
    set(summary) {
      const { removed, added, reasked, net } = summary.tokens;
      replace(value, net, () => [h("span", { title: count(net, "token") }, compact(net)), h("small", {}, " tokens")]);
      replace(money, JSON.stringify(summary.money), () => moneyLines(summary.money));
      replace(strip, `${removed} ${added} ${reasked}`, () => segments({ removed, added, reasked }));
      strip.setAttribute("aria-label", `${count(removed, "token")} removed, ${number(added)} added, ${number(reasked)} asked again`);
      replace(sum, `${removed} ${added} ${reasked}`, () => [
        term("removed", removed, "removed"), " − ", term("added", added, "added"), " − ", term("asked again", reasked, "reasked")]);
      setText(hold, holdOut(summary.hold_out));
    },
  };
}

function term(label, value, tone) {
  return h("span", { class: `term ${tone}` }, h("b", {}, number(value)), ` ${label}`);
}

function segments(parts) {
  const all = parts.removed + parts.added + parts.reasked;
  return ["removed", "added", "reasked"].filter((name) => parts[name] > 0).map((name) => {
    const segment = h("span", { class: name });
    segment.style.flexGrow = share(parts[name], all);
    return segment;
  });
}

function moneyLines(money) {
  if (!money) return [h("span", {}, "In tokens only: no prices are known for these models.")];
  const line = (usd, at) => h("span", {}, h("b", {}, dollars(usd)), ` ${at}`);
  return [line(money.net_usd_uncached, "at the full input price"), line(money.net_usd_cached, "at the cached price")];
}

function holdOut(hold) {
  if (!hold) return "No hold-out: no traffic is left ungoverned to compare with.";
  return `Hold-out of ${percent(hold.share)} of the conversations: ${hold.note}`;
}

function figures() {
  const all = {
    runaways: figure("Runaways stopped"),
    blocked: figure("Tool calls blocked"),
    cost: figure("Cost of guarding, p99"),
    person: figure("Needs a person", { tone: "amber", link: { href: "#/approvals", text: "Decide" } }),
    requests: figure("Requests"),
  };
  return {
    element: h("dl", { class: "figures" }, Object.values(all).map((one) => one.element)),
    set(summary) {
      const calls = summary.tool_calls;
      const judged = VERDICTS.reduce((sum, name) => sum + (calls[name] ?? 0), 0);
      all.runaways.set(number(summary.runaways_stopped), `in ${count(summary.turns, "turn")}`);
      all.blocked.set(number(calls.block), `${percent(share(calls.block, judged))} of ${count(judged, "call")}`);
      const guarding = summary.cost_of_guarding;
      all.cost.set(milliseconds(guarding.overhead_p99_ms), `and ${count(guarding.added_tokens, "token")} added or asked again`);
      const waiting = summary.approvals_pending;
      all.person.set(number(waiting), waiting === 1 ? "approval waits." : "approvals wait.", waiting > 0);
      all.requests.set(number(summary.requests), `in ${duration(summary.now_ms - summary.started_ms)}`);
    },
  };
}

function verdicts() {
  const list = h("dl", { class: "bars" });
  return {
    element: panel("Verdicts on tool calls", {}, list),
    set(calls) {
      const all = VERDICTS.reduce((sum, name) => sum + (calls[name] ?? 0), 0);
      replace(list, JSON.stringify(calls), () => VERDICTS.map((name) => {
        const part = share(calls[name] ?? 0, all);
        return h("div", { class: name }, h("dt", {}, name),
          h("dd", {}, bar(part, `${percent(part)} of the calls`), h("span", { class: "amount" }, number(calls[name] ?? 0))));
      }));
    },
  };
}

/** The latest events, newest first. */
function feed(context) {
  const list = h("ol", { class: "feed" });
  const nothing = h("p", { class: "empty" });
  let frame = null;
  const row = (event) => {
    const { data } = event;
    const link = data.conversation && h("a", { href: conversationLink(data.conversation) }, data.conversation);
    return h("li", {},
      h("time", {}, time(data.at_ms)), verdict(event.event),
      h("span", { class: "what" }, data.tool && h("code", {}, data.tool), data.policy && h("span", { class: "by" }, data.policy), link,
        (data.message || data.missed) && h("span", { class: "said" }, data.message ?? `${count(data.missed, "event")} missed`)));
  };
  return {
    element: panel("Live", { wide: true }, list, nothing),
    /** Draws once a frame, however many events come. */
    drawSoon() {
      frame ??= requestAnimationFrame(() => ((frame = null), this.draw()));
    },
    draw() {
      const events = context.recent.filter(({ event }) => event !== "tool_call_start").slice(0, MOST_EVENTS);
      events.forEach((event) => (event.key ??= crypto.randomUUID?.() ?? Math.random()));
      keyed(list, events, { key: (event) => event.key, create: row });
      nothing.hidden = events.length > 0;
      setText(nothing, session.isSignedIn ? "No event since this page was opened." : "Sign in to follow events as they happen.");
    },
  };
}

export const minuteCharts = {
  traffic: () => chart({ title: "Requests and blocked calls", unit: "number a minute", series: [
    { label: "Requests", colour: "--series-1", bars: true }, { label: "Blocked", colour: "--bad", bars: true }] }),
  tokens: () => chart({ title: "Tokens removed, and added or asked again", unit: "tokens a minute", series: [
    { label: "Removed", colour: "--good" }, { label: "Added or asked again", colour: "--warn" }] }),
};

/** The columns of the last hour: seconds, and a list for each name. The server leaves out minutes without requests: they are zero here, up to now. */
export function columns({ minutes = [], now_ms: now }, ...names) {
  const known = new Map(minutes.map((minute) => [minute.at_ms, minute]));
  const last = Math.max(Math.floor((now ?? Date.now()) / MINUTE_MS) * MINUTE_MS, ...known.keys());
  const since = (last - Math.min(last, ...known.keys())) / MINUTE_MS + 1;
  const length = Math.min(SHOWN.most, Math.max(SHOWN.least, since));
  const times = Array.from({ length }, (_, index) => last - (length - 1 - index) * MINUTE_MS);
  return [times.map((time) => time / 1000), names.map((name) => times.map((time) => known.get(time)?.[name] ?? 0))];
}

export const overview = {
  name: "overview",
  title: "Overview",
  create(context) {
    const [hero, needs, numbers, calls, live] = [savingsHero(), attention(), figures(), verdicts(), feed(context)];
    const [traffic, tokens] = [minuteCharts.traffic(), minuteCharts.tokens()];
    const policies = table({ caption: "Policies", key: (row) => row.policy, nothing: "No policy has acted yet.", sort: 5, columns: [
      { title: "Policy", value: (row) => row.policy },
      { title: "Blocked", value: (row) => row.block, cell: (row) => number(row.block), numeric: true },
      { title: "Removed", value: (row) => row.removed, cell: (row) => compact(row.removed), numeric: true },
      { title: "Added", value: (row) => row.added, cell: (row) => compact(row.added), numeric: true },
      { title: "Asked again", value: (row) => row.reasked, cell: (row) => compact(row.reasked), numeric: true },
      { title: "Net", value: (row) => row.net, cell: (row) => compact(row.net), numeric: true },
    ] });
    const ungoverned = table({ caption: "Relayed and not governed", key: (row) => row.endpoint, sort: 1,
      nothing: "Nothing: every request was governed.", columns: [
        { title: "Endpoint", value: (row) => row.endpoint },
        { title: "Requests", value: (row) => row.requests, cell: (row) => number(row.requests), numeric: true },
      ] });
    const element = h("div", { class: "grid" }, hero.element, needs.element, numbers.element,
      panel("The last hour: traffic", {}, traffic.element), panel("The last hour: tokens", {}, tokens.element),
      calls.element, panel("Relayed and not governed", {}, ungoverned.element),
      panel("Policies at work", { wide: true }, policies.element), live.element);
    return {
      element,
      load: (signal) => get("api/health", signal),
      show(health, summary) {
        hero.set(summary);
        needs.set(summary, health);
        numbers.set(summary);
        calls.set(summary.tool_calls);
        policies.set(summary.policies ?? []);
        ungoverned.set(summary.ungoverned ?? []);
        traffic.set(...columns(summary, "requests", "blocked"));
        tokens.set(...columns(summary, "removed", "added"));
        live.draw();
      },
      event: () => live.drawSoon(),
      close: () => (traffic.close(), tokens.close()),
    };
  },
};
