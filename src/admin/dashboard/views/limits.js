// Limits: who hits which one, how many turns came near to theirs, and what each named caller has used and has left.

import { get } from "../api.js";
import { h } from "../dom.js";
import { dollars, duration, number, percent, share, time } from "../format.js";
import { bar, panel } from "../parts.js";
import { table } from "../table.js";

/** Limits of a caller's day, and how their amounts are written. */
const OF_DAY = {
  "day:spend_microusd": (amount) => dollars(amount / 1e6),
  "day:billed_tokens": (amount) => `${number(amount)} tokens`,
  "day:requests": (amount) => `${number(amount)} requests`,
  "day:tool_calls": (amount) => `${number(amount)} tool calls`,
  "day:time_ms": duration,
};

function reached(level) {
  const part = (row) => share(row[`reached_${level}`], row.turns);
  return { title: `Reached ${level}%`, value: (row) => row[`reached_${level}`], numeric: true, cell: (row) => h("span", { class: "with-bar" },
    `${number(row[`reached_${level}`])} (${percent(part(row))})`, bar(part(row), `${percent(part(row))} of the turns`)) };
}

/** What one budget of a caller has left. */
function left(budget) {
  const written = OF_DAY[budget.name] ?? number;
  const of = OF_DAY[budget.name] ? "today" : `of the quota ${budget.name}`;
  const part = share(budget.used, budget.limit);
  return h("div", { class: "with-bar" }, `${written(budget.left)} of ${written(budget.limit)} ${of}`, bar(part, `${percent(part)} used`, { judge: true }));
}

const count = (name, title) => ({ title, value: (row) => row[name], cell: (row) => number(row[name]), numeric: true });

const callersTable = () => table({ caption: "Use by caller", key: (row) => row.caller, sort: 4, nothing: "No caller has been named yet.", columns: [
  { title: "Caller", value: (row) => row.caller },
  count("requests", "Requests"), count("input_tokens", "Input tokens"), count("output_tokens", "Output tokens"),
  { title: "Cost", value: (row) => row.cost_usd, numeric: true, cell: (row) => Number.isFinite(row.cost_usd) ? dollars(row.cost_usd) : "no price" },
  { title: "Left", fixed: true, value: () => null, cell: (row) => row.budgets.length === 0 ? "no limit" : h("div", {}, row.budgets.map(left)) },
  { title: "Last request", value: (row) => row.last_ms, numeric: true, cell: (row) => h("time", {}, time(row.last_ms)) },
] });

export const limits = {
  name: "limits",
  title: "Limits",
  create() {
    const turns = table({ caption: "Turns near to their limit", key: (row) => row.policy, sort: 4,
      nothing: "No turn has used a limit yet.", columns: [
        { title: "Policy", value: (row) => row.policy },
        { title: "Turns", value: (row) => row.turns, cell: (row) => number(row.turns), numeric: true },
        reached(50), reached(80), reached(100),
      ] });
    let most = 1;
    const blocked = table({ caption: "Blocked calls by policy and tool", key: (row) => `${row.policy}\n${row.tool}`, sort: 2,
      nothing: "No call has been blocked yet.", columns: [
        { title: "Policy", value: (row) => row.policy },
        { title: "Tool", value: (row) => row.tool, cell: (row) => h("code", {}, row.tool) },
        { title: "Blocked calls", value: (row) => row.blocked, numeric: true, cell: (row) => h("span", { class: "with-bar" },
          number(row.blocked), bar(row.blocked / most, `${number(row.blocked)} of at most ${number(most)}`)) },
      ] });
    const callers = callersTable();
    // Callers have names only where the operator says what names them.
    const named = panel("Callers", { wide: true, note: "What this process has seen since its start. What is left is as of the caller's last request here." }, callers.element);
    named.hidden = true;
    return {
      element: h("div", { class: "grid" },
        panel("Turns that came near to a limit", { wide: true, note: "Many turns at 100% say that a limit is too low for the work, or that an agent runs away." }, turns.element),
        panel("Blocked calls by policy and tool", { wide: true }, blocked.element),
        named),
      load: (signal) => get("api/limits", signal),
      show(data) {
        most = Math.max(1, ...data.limits.map((row) => row.blocked));
        turns.set(data.turns);
        blocked.set(data.limits);
        const rows = data.callers ?? [];
        named.hidden = rows.length === 0;
        callers.set(rows);
      },
    };
  },
};
