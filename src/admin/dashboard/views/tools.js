// Tools: which one is called, fails or bloats, with percentiles of what its results weigh and take.

import { get } from "../api.js";
import { h } from "../dom.js";
import { bytes, number, percent, seconds, share } from "../format.js";
import { figure, panel } from "../parts.js";
import { table } from "../table.js";

const at = (group, name) => (row) => row[group]?.[name] ?? null;

function percentiles(group, title, format) {
  return ["p50", "p95", "p99"].map((name) => ({
    title: `${title} ${name}`, value: at(group, name), cell: (row) => format(at(group, name)(row) ?? NaN), numeric: true,
  }));
}

const COLUMNS = [
  { title: "Tool", value: (row) => row.tool, cell: (row) => h("code", {}, row.tool) },
  { title: "Calls", value: (row) => row.calls, cell: (row) => number(row.calls), numeric: true },
  { title: "Blocked", value: (row) => row.blocked, numeric: true, cell: (row) => h("span", { class: row.blocked > 0 ? "hot" : null },
    row.blocked > 0 ? `${number(row.blocked)} (${percent(share(row.blocked, row.calls))})` : "0") },
  { title: "Errors", value: (row) => row.errors, cell: (row) => number(row.errors), numeric: true },
  { title: "Empty", value: (row) => row.empty, cell: (row) => number(row.empty), numeric: true },
  ...percentiles("tokens", "Tokens", number),
  ...percentiles("bytes", "Size", bytes),
  ...percentiles("seconds", "Time", seconds),
];

function startPanel() {
  const parts = { system_tokens: figure("System prompt, p50"), definition_tokens: figure("Tool definitions, p50") };
  return {
    element: h("dl", { class: "figures" }, Object.values(parts).map((one) => one.element)),
    set(start) {
      for (const [name, one] of Object.entries(parts)) {
        const { p50, p95, p99 } = start?.[name] ?? {};
        one.set(number(p50 ?? NaN), `tokens; p95 ${number(p95 ?? NaN)}, p99 ${number(p99 ?? NaN)}`);
      }
    },
  };
}

export const tools = {
  name: "tools",
  title: "Tools",
  create() {
    const start = startPanel();
    const list = table({ caption: "Tools", columns: COLUMNS, key: (row) => row.tool, sort: 1, dense: true,
      nothing: "No tool has been called yet. Tools appear here with their first call." });
    const element = h("div", { class: "grid" },
      panel("What a conversation starts with", { wide: true, note: "Each request pays for these tokens again, unless the provider has them cached." }, start.element),
      panel("By tool", { wide: true, note: "A size at p95 says: 95 of 100 results are at most as large. Choose a heading to sort." }, list.element));
    return {
      element,
      load: (signal) => get("api/tools", signal),
      show(data) {
        start.set(data.start);
        list.set(data.tools);
      },
    };
  },
};
