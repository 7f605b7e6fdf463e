// One conversation: its items, what was decided, what its budgets have left, and the switch that stops it.

import { change, conversationPath, get } from "../api.js";
import { h, keyed, replace, setText } from "../dom.js";
import { openExplanation } from "../explain.js";
import { count, duration, number, percent, readableArguments, seconds, share, time } from "../format.js";
import { ask, bar, empty, figure, panel, pill, verdict } from "../parts.js";
import { table } from "../table.js";

/** Items are shown from the newest back; more on demand. */
const PAGE = 200;
const LONG = 1_200;
const NAMES = { system: "System", user: "User", assistant: "Assistant", call: "Tool call", result: "Result", notice: "Notice by toolrein", blocked: "Blocked" };

function itemView(item) {
  const text = item.kind === "call" || item.kind === "blocked" ? readableArguments(item.arguments) : item.text ?? "";
  const more = item.kind === "blocked" ? item.message : null;
  return h("article", { class: `item ${item.kind}${item.is_error ? " error" : ""}` },
    h("h3", {}, NAMES[item.kind] ?? item.kind, item.tool && h("code", {}, item.tool), item.policy && pill(item.policy, "warn"),
      item.is_error && pill("error", "bad")),
    text && long(text),
    more && h("p", { class: "reason" }, more));
}

function long(text) {
  if (text.length <= LONG) return h("pre", {}, text);
  const all = h("pre", {}, `${text.slice(0, LONG)} …`);
  const button = h("button", { type: "button", class: "quiet", onclick: () => (setText(all, text), button.remove()) },
    `Show all ${count(text.length, "character")}`);
  return [all, button];
}

function itemsPanel() {
  const list = h("div", { class: "items" });
  const nothing = empty("No item is known of it.");
  let most = PAGE;
  let items = [];
  const earlier = h("button", { type: "button", class: "quiet", onclick: () => ((most += PAGE), draw()) });
  function draw() {
    const first = Math.max(0, items.length - most);
    earlier.hidden = first === 0;
    setText(earlier, `Show earlier items (${number(first)})`);
    nothing.hidden = items.length > 0;
    const numbered = items.slice(first).map((item, index) => ({ item, at: first + index }));
    keyed(list, numbered, {
      key: ({ at }) => at,
      create: () => h("div", {}),
      update: (child, { item }) => replace(child, JSON.stringify(item), () => itemView(item)),
    });
  }
  return {
    element: panel("Items", { wide: true, note: "As the program sent them with its newest request, oldest first." }, earlier, list, nothing),
    set: (next) => ((items = next), draw()),
  };
}

function budgetsPanel() {
  const shown = h("div");
  const row = (one) => {
    const part = share(one.used, one.limit);
    return h("div", {}, h("dt", {}, one.name === "*" ? "all tools" : one.name, h("span", { class: "by" }, one.policy)),
      h("dd", {}, `${number(one.used)} of ${number(one.limit)}`, bar(part, `${percent(part)} used`, { judge: true })));
  };
  return {
    element: panel("Budgets", {}, shown),
    set(budgets) {
      replace(shown, JSON.stringify(budgets),
        () => budgets.length === 0 ? empty("No budget has been used.") : h("dl", { class: "budgets" }, budgets.map(row)));
    },
  };
}

const decisionsTable = () => table({ caption: "Decisions", key: (row) => `${row.at_ms} ${row.tool} ${row.policy} ${row.position}`,
  nothing: "No policy has decided anything here yet.", columns: [
    { title: "Time", fixed: true, class: "when", value: (row) => row.at_ms, cell: (row) => h("time", {}, time(row.at_ms)) },
    { title: "Tool", fixed: true, value: (row) => row.tool, cell: (row) => h("code", {}, row.tool) },
    { title: "Verdict", fixed: true, value: (row) => row.verdict, cell: (row) => verdict(row.verdict) },
    { title: "Policy", fixed: true, value: (row) => row.policy },
    { title: "Used", fixed: true, numeric: true, value: (row) => row.used, cell: (row) => row.limit ? `${number(row.used)} of ${number(row.limit)}` : "–" },
    { title: "What the model was shown", fixed: true, class: "words", value: (row) => row.message },
  ] });

/** Each call with its time, how long it took and what its result was. */
const callsTable = () => table({ caption: "Calls", key: (row) => row.position, nothing: "No call was made yet.", columns: [
  { title: "Time", fixed: true, class: "when", value: (row) => row.at_ms, cell: (row) => h("time", {}, time(row.at_ms)) },
  { title: "Tool", fixed: true, value: (row) => row.tool, cell: (row) => h("code", {}, row.tool) },
  { title: "Verdict", fixed: true, value: (row) => row.verdict, cell: (row) => verdict(row.verdict) },
  { title: "Took", fixed: true, numeric: true, value: (row) => row.took_ms ?? -1, cell: (row) => row.took_ms == null ? "–" : seconds(row.took_ms / 1000) },
  { title: "Result", fixed: true, value: (row) => row.outcome ?? "", cell: (row) => row.outcome ?? "–" },
] });

/** The buttons: explain, stop or resume the conversation, stop its caller. */
function switches(context, id) {
  const problem = h("p", { class: "problem", role: "alert" });
  let now = null;
  const act = async (work) => {
    setText(problem, "");
    try {
      const except = (await work())?.not_in_profiles;
      if (except) setText(problem, `Stopped, but without effect in: ${except.map((name) => name ?? "requests without a profile").join(", ")}.`);
    } catch (error) {
      setText(problem, error.message);
    }
    context.refresh();
  };
  const stop = h("button", { type: "button", class: "danger", onclick: () => act(async () => {
    if (now.is_stopped) {
      await change("DELETE", conversationPath(id, "/stop"));
      context.announce("The conversation may go on.");
      return null;
    }
    if (!await ask("Stop this conversation?", "Its next tool calls are blocked, and the model is asked for a final answer. You can let it go on later, here or in the list.", "Stop")) return null;
    const stopped = await change("POST", conversationPath(id, "/stop"));
    context.announce("The conversation is stopped.");
    return stopped;
  }) });
  const caller = h("button", { type: "button", class: "quiet", onclick: () => act(async () => {
    const text = "Every conversation of this caller is stopped: all that comes with the same credential. The list of conversations lets it go on.";
    if (!await ask("Stop the caller of this conversation?", text, "Stop the caller")) return null;
    const stopped = await change("POST", `api/callers/${encodeURIComponent(now.caller)}/stop`);
    context.announce("The caller is stopped.");
    return stopped;
  }) }, "Stop its caller");
  const explain = h("button", { type: "button", class: "primary", onclick: () => act(() => openExplanation(id)) }, "Explain in a new tab");
  return {
    element: h("div", { class: "switches" }, h("p", { class: "actions" }, explain, stop, caller), problem),
    set(data) {
      now = data;
      setText(stop, data.is_stopped ? "Let it go on" : "Stop");
      stop.classList.toggle("danger", !data.is_stopped);
      caller.hidden = !data.caller;
    },
  };
}

function facts() {
  const all = { started: figure("Started"), requests: figure("Requests"), calls: figure("Tool calls"), removed: figure("Tokens removed") };
  return {
    element: h("dl", { class: "figures" }, Object.values(all).map((one) => one.element)),
    set(data) {
      all.started.set(time(data.started_ms), `for ${duration(data.duration_ms)}`);
      all.requests.set(number(data.requests), `${count(data.turns, "turn")}, last at ${time(data.last_ms)}`);
      all.calls.set(number(data.calls), `${number(data.blocked)} blocked`, data.blocked > 0);
      all.removed.set(number(data.tokens_removed), `${number(data.tokens_added)} added`);
    },
  };
}

export const conversation = {
  name: "conversation",
  title: "Conversation",
  isPrivate: true,
  create(context, route) {
    const { id } = route;
    const [buttons, numbers, items, budgets] = [switches(context, id), facts(), itemsPanel(), budgetsPanel()];
    const [decisions, calls] = [decisionsTable(), callsTable()];
    const labels = h("p", { class: "labels" });
    return {
      element: h("div", { class: "grid thirds" },
        h("div", { class: "wide lead" }, h("p", {}, h("a", { href: "#/conversations" }, "All conversations")), labels, buttons.element),
        numbers.element,
        panel("Decisions", {}, decisions.element), budgets.element, panel("Calls", { wide: true }, calls.element), items.element),
      load: (signal) => get(conversationPath(id), signal),
      show(data) {
        replace(labels, JSON.stringify([data.model, data.profile, data.caller, data.is_stopped, data.policies]), () => [
          data.is_stopped && pill("stopped", "bad"), label("model", data.model), label("profile", data.profile), label("caller", data.caller),
          data.policies?.length > 0 && label("policies", data.policies.join(", "))]);
        buttons.set(data);
        numbers.set(data);
        decisions.set(data.decisions.map((row, position) => ({ ...row, position })).reverse());
        calls.set((data.tool_calls ?? []).map((row, position) => ({ ...row, position })).reverse());
        items.set(data.items);
        budgets.set(data.budgets);
      },
    };
  },
};

function label(name, value) {
  return value ? h("span", {}, `${name} `, h("b", {}, value)) : null;
}
