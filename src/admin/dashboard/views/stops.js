// What is stopped now, with the button that lets it go on. Shown above the list of conversations where anything is.

import { change, get } from "../api.js";
import { h, setText } from "../dom.js";
import { time } from "../format.js";
import { panel } from "../parts.js";
import { conversationLink } from "../router.js";
import { table } from "../table.js";

const INCOMPLETE = "The state store did not answer: stops that other replicas set may be missing.";

/** The panel; `load` and `set` are called by the view that shows it. */
export function stopsPanel(context) {
  const note = h("p", { class: "note" });
  const problem = h("p", { class: "problem", role: "alert" });
  const resume = async (stop) => {
    setText(problem, "");
    try {
      await change("DELETE", `api/${stop.what}s/${encodeURIComponent(stop.id)}/stop`);
      context.announce(`The ${stop.what} may go on.`);
    } catch (error) {
      setText(problem, error.message);
    }
    context.refresh();
  };
  const list = table({ caption: "Stopped now", key: (row) => `${row.what} ${row.id}`, nothing: "Nothing is stopped.", columns: [
    { title: "Id", fixed: true, value: (row) => row.id, cell: (row) => row.what === "conversation"
      ? h("a", { href: conversationLink(row.id) }, row.id) : h("code", {}, row.id) },
    { title: "What", fixed: true, value: (row) => row.what },
    { title: "Until", fixed: true, class: "double", value: (row) => row.until, cell: (row) => h("time", {}, time(Date.parse(row.until))) },
    { title: "Action", fixed: true, numeric: true, value: () => "", cell: (row) => h("button", { type: "button", class: "quiet",
      "aria-label": `Let it go on: ${row.what} ${row.id}`, onclick: () => resume(row) }, "Let it go on") },
  ] });
  const element = panel("Stopped now", { wide: true }, note, list.element, problem);
  return {
    element,
    load: (signal) => get("api/stops", signal),
    set({ data, complete }) {
      element.hidden = data.length === 0 && complete !== false;
      setText(note, complete === false ? INCOMPLETE : "");
      list.set(data);
    },
  };
}
