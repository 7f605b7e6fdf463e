// Approvals: calls that wait for a person, each with its arguments, its time left and the two answers; and who decided what.

import { change, get } from "../api.js";
import { h, keyed, replace, setText } from "../dom.js";
import { countdown, readableArguments, time } from "../format.js";
import { empty, panel, verdict } from "../parts.js";
import { conversationLink } from "../router.js";
import { session } from "../session.js";
import { table } from "../table.js";

const SOON_MS = 30_000;

/** The API's word for a call that nobody decided on. */
const WORDS = { lapse: "expired" };

const historyTable = () => table({ caption: "Decided approvals, newest first", key: (row) => row.position,
  nothing: "Nobody has decided anything yet.", columns: [
    { title: "Time", fixed: true, class: "when", value: (row) => row.at_ms, cell: (row) => h("time", {}, time(row.at_ms)) },
    { title: "Tool", fixed: true, value: (row) => row.tool, cell: (row) => h("code", {}, row.tool) },
    { title: "Decision", fixed: true, value: (row) => row.decision, cell: (row) => verdict(WORDS[row.decision] ?? row.decision) },
    { title: "Approver", fixed: true, value: (row) => row.approver || null },
    { title: "Reason", fixed: true, class: "words", value: (row) => row.reason || null },
    { title: "Arguments", fixed: true, class: "words", value: (row) => row.arguments, cell: (row) => h("code", {}, oneLine(row.arguments)) },
  ] });

function oneLine(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  return text.length > 160 ? `${text.slice(0, 160)} …` : text;
}

/** The answer's form of one waiting call. */
function card(context, approver, waiting) {
  const name = `reason-${waiting.token}`;
  const reason = h("input", { id: name, maxlength: "500", autocomplete: "off" });
  const problem = h("p", { class: "problem", role: "alert" });
  const buttons = [];
  const decide = async (decision) => {
    const missing = !approver.value.trim() ? [approver, "Enter your name first: the history shows who decided."]
      : decision === "decline" && !reason.value.trim() ? [reason, "Give a reason: the model is shown it, and can try something else."] : null;
    setText(problem, missing?.[1] ?? "");
    if (missing) return missing[0].focus();
    buttons.forEach((button) => (button.disabled = true));
    const text = reason.value.trim();
    try {
      await change("POST", `api/confirmations/${encodeURIComponent(waiting.token)}`,
        { decision, approver: approver.value.trim(), ...(text && { reason: text }) });
      context.announce(`${waiting.tool} was ${decision}d.`);
    } catch (error) {
      setText(problem, error.message);
      context.announce(error.message);
      buttons.forEach((button) => (button.disabled = false));
    }
    context.refresh();
  };
  buttons.push(h("button", { type: "button", class: "primary", onclick: () => decide("approve") }, "Approve"),
    h("button", { type: "button", class: "danger", onclick: () => decide("decline") }, "Decline"));
  const left = h("span", { class: "left", role: "timer" });
  left.dataset.since = Date.parse(waiting.since);
  left.dataset.expires = Date.parse(waiting.expires);
  return h("article", { class: "approval", "aria-label": `Approval of ${waiting.tool}` },
    h("div", { class: "panel-head" }, h("h3", {}, h("code", {}, waiting.tool)), left),
    waiting.readable && h("p", { class: "readable" }, waiting.readable),
    waiting.why && h("p", {}, waiting.why),
    h("pre", { tabindex: "0", role: "group", "aria-label": "Arguments" }, readableArguments(waiting.arguments)),
    waiting.conversation && h("p", { class: "note" }, "In ", h("a", { href: conversationLink(waiting.conversation) }, waiting.conversation),
      `, since ${time(Date.parse(waiting.since))}`),
    h("div", { class: "answer" }, h("label", { for: name }, "Reason"), reason, h("div", { class: "actions" }, buttons)),
    problem);
}

function count(element, now) {
  const { since, expires } = element.dataset;
  const left = Number(expires) - now;
  setText(element, left > 0 ? `${countdown(left)} left` : "time is over");
  element.classList.toggle("hot", left < SOON_MS);
  element.style.setProperty("--part", `${Math.max(0, Math.min(1, left / (expires - since))) * 100}%`);
}

export const approvals = {
  name: "approvals",
  title: "Approvals",
  isPrivate: true,
  create(context) {
    const approver = h("input", { id: "approver", maxlength: "100", autocomplete: "name", value: session.approver,
      onchange: () => (session.approver = approver.value) });
    const list = h("div", { class: "approvals" });
    const nothing = empty("Nothing waits for a person. A call that policy “confirm” holds appears here at once.");
    const history = historyTable();
    const tick = () => list.querySelectorAll(".left").forEach((element) => count(element, context.now()));
    return {
      element: h("div", { class: "grid" },
        panel("Waiting", { wide: true, actions: h("label", { class: "approver" }, "Your name", approver) }, list, nothing),
        panel("History", { wide: true, note: "Expired: nobody decided while the call waited, for example because its client left. It was not run." }, history.element)),
      async load(signal) {
        const [waiting, decided] = await Promise.all([get("api/confirmations", signal), get("api/confirmations/history", signal)]);
        return { waiting: waiting.data, decided: decided.history };
      },
      show({ waiting, decided }) {
        keyed(list, waiting, { key: (one) => one.token, create: (one) => card(context, approver, one) });
        nothing.hidden = waiting.length > 0;
        history.set(decided.map((row, position) => ({ ...row, position: decided.length - position })));
        tick();
      },
      tick,
    };
  },
};
