// Limits: who hits which one, and how many turns came near to theirs.

import { get } from "../api.js";
import { h } from "../dom.js";
import { number, percent, share } from "../format.js";
import { bar, panel } from "../parts.js";
import { table } from "../table.js";

function reached(level) {
  const part = (row) => share(row[`reached_${level}`], row.turns);
  return { title: `Reached ${level}%`, value: (row) => row[`reached_${level}`], numeric: true, cell: (row) => h("span", { class: "with-bar" },
    `${number(row[`reached_${level}`])} (${percent(part(row))})`, bar(part(row), `${percent(part(row))} of the turns`)) };
}

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
    return {
      element: h("div", { class: "grid" },
        panel("Turns that came near to a limit", { wide: true, note: "Many turns at 100% say that a limit is too low for the work, or that an agent runs away." }, turns.element),
        panel("Blocked calls by policy and tool", { wide: true }, blocked.element)),
      load: (signal) => get("api/limits", signal),
      show(data) {
        most = Math.max(1, ...data.limits.map((row) => row.blocked));
        turns.set(data.turns);
        blocked.set(data.limits);
      },
    };
  },
};
