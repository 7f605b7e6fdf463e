// What needs a person, apart from approvals: each line says what is wrong and links to the view that shows it.

import { h, replace } from "../dom.js";
import { count } from "../format.js";

/** The lines for a summary and the health of the server: text, and the view that shows more. */
export function matters(summary, health) {
  const { mode } = summary;
  const { store, reloads, recorder, rules } = health;
  const disarmed = [...new Set((health.refusals ?? []).filter((row) => row.kind === "tools").map((row) => row.model))];
  return [
    mode === "observe" && ["Mode observe: policies decide, and nothing is changed or blocked.", "health"],
    mode === "off" && ["Mode off: nothing is governed.", "health"],
    store?.up === false && [`The state store (${store.kind}) does not answer: limits count only what this process has seen.`, "health"],
    reloads?.refused > 0 && [`${count(reloads.refused, "reload")} of the configuration ${reloads.refused === 1 ? "was" : "were"} refused since the start.`, "health"],
    disarmed.length > 0 && [`${disarmed.join(", ")}: requests were answered without their tools, which the upstream refuses.`, "health"],
    rules?.unfitted?.length > 0 && [`${count(rules.unfitted.length, "rule")} ${rules.unfitted.length === 1 ? "fits" : "fit"} none of the tools in use.`, "health"],
    recorder?.dropped > 0 && [`The recorder dropped ${count(recorder.dropped, "record")}.`, "health"],
  ].filter(Boolean);
}

/** The list; hidden where nothing is the matter. */
export function attention() {
  const list = h("ul", { class: "attention wide", "aria-label": "Needs a person" });
  return {
    element: list,
    set(summary, health) {
      const lines = matters(summary, health);
      list.hidden = lines.length === 0;
      replace(list, JSON.stringify(lines), () => lines.map(([text, view]) => h("li", {}, h("span", {}, text), h("a", { href: `#/${view}` }, "Look"))));
    },
  };
}
