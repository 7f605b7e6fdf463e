// Savings: what each policy removed and added, what each model used, in tokens and where prices are known in money.

import { h } from "../dom.js";
import { count, dollars, number } from "../format.js";
import { bar, panel } from "../parts.js";
import { table } from "../table.js";
import { columns, minuteCharts, savingsHero } from "./overview.js";

const tokens = (name, title) => ({ title, value: (row) => row[name], cell: (row) => number(row[name]), numeric: true });

export const savings = {
  name: "savings",
  title: "Savings",
  create() {
    const [hero, hour] = [savingsHero(), minuteCharts.tokens()];
    let most = 1;
    const policies = table({ caption: "Savings by policy", key: (row) => row.policy, sort: 1,
      nothing: "No policy has changed any tokens yet.", columns: [
        { title: "Policy", value: (row) => row.policy },
        { title: "Net tokens", value: (row) => row.net, numeric: true, cell: (row) => h("span", { class: row.net < 0 ? "with-bar loss" : "with-bar" },
          number(row.net), bar(Math.abs(row.net) / most, `${count(row.net, "token")} net`)) },
        tokens("removed", "Removed"), tokens("added", "Added"), tokens("reasked", "Asked again"), tokens("block", "Calls blocked"),
      ] });
    const models = table({ caption: "Use by model", key: (row) => row.model, sort: 4,
      nothing: "No model has answered yet.", columns: [
        { title: "Model", value: (row) => row.model },
        tokens("requests", "Requests"), tokens("input_tokens", "Input tokens"), tokens("output_tokens", "Output tokens"),
        { title: "Cost", value: (row) => row.cost_usd, numeric: true, cell: (row) => Number.isFinite(row.cost_usd) ? dollars(row.cost_usd) : "no price" },
      ] });
    return {
      element: h("div", { class: "grid" }, hero.element,
        panel("By policy", { wide: true, note: "Net is what was removed, less what toolrein added and less what asking again cost. A guard may cost tokens: it buys safety." }, policies.element),
        panel("By model", { wide: true, note: "What was sent and answered, after toolrein's changes." }, models.element),
        panel("The last hour", { wide: true }, hour.element)),
      show(_, summary) {
        hero.set(summary);
        const rows = summary.policies ?? [];
        most = Math.max(1, ...rows.map((row) => Math.abs(row.net)));
        policies.set(rows);
        models.set(summary.models ?? []);
        hour.set(...columns(summary, "removed", "added"));
      },
      close: () => hour.close(),
    };
  },
};
