// The parts that views are made of: panels, figures, labels, bars and messages in place of contents.

import { h, setText } from "./dom.js";

/** A titled section. `wide` takes the whole row. */
export function panel(title, { note, wide, actions, id } = {}, ...children) {
  const heading = h("h2", { id }, title);
  const head = h("div", { class: "panel-head" }, heading, actions);
  return h("section", { class: wide ? "panel wide" : "panel", "aria-label": title }, head,
    note && h("p", { class: "note" }, note), children);
}

/** One number with its label and a line below; `set` changes them. */
export function figure(label, { tone, link } = {}) {
  const value = h("dd", { class: "value" });
  const more = h("dd", { class: "more" });
  const body = [h("dt", {}, label), value, more];
  const element = h("div", { class: `figure${tone ? ` ${tone}` : ""}` }, body);
  const go = link && h("a", { href: link.href }, link.text);
  return {
    element,
    set(text, below = "", isHot = false) {
      setText(value, text);
      if (go) {
        if (more.firstChild?.nodeType !== Node.TEXT_NODE) more.replaceChildren(document.createTextNode(""), go);
        if (more.firstChild.data !== `${below} `) more.firstChild.data = `${below} `;
      } else setText(more, below);
      element.classList.toggle("hot", isHot);
    },
  };
}

/** A small label with a colour of its kind. */
export function pill(text, tone = "") {
  return h("span", { class: `pill ${tone}` }, text);
}

const TONES = {
  block: "bad", blocked: "bad", decline: "bad", ask: "warn", expired: "warn", modify: "info", answer: "info", allow: "good", approve: "good",
  tool_call_blocked: "bad", approval: "warn", re_ask: "info", fallback: "info", notice: "info", done: "good",
};

/** The label of a verdict, a decision or an event. */
export function verdict(word) {
  return pill(String(word).replaceAll("_", " "), TONES[word] || "");
}

/** A bar from 0 to 1, empty at 0; red at the limit and beyond, amber near to it. `label` is what a screen reader says. */
export function bar(fraction, label, { judge = false } = {}) {
  const share = Math.max(0, Math.min(1, fraction || 0));
  const fill = share > 0 && h("span", { class: "fill" });
  if (fill) fill.style.width = `${share * 100}%`;
  const tone = !judge ? "" : fraction >= 1 ? " over" : fraction >= 0.8 ? " near" : "";
  return h("span", { class: `bar${tone}`, role: "img", "aria-label": label }, fill);
}

/** A message in place of contents: nothing yet, a failure, signed out. */
export function state(title, text, ...actions) {
  return h("div", { class: "state" }, h("p", { class: "state-title" }, title), text && h("p", {}, text),
    actions.length > 0 && h("p", { class: "actions" }, actions));
}

/** A line for an empty list. */
export function empty(text) {
  return h("p", { class: "empty" }, text);
}

/** Asks before something is done; resolves to whether the person agreed. */
export function ask(title, text, agree) {
  const dialog = document.getElementById("question");
  return new Promise((resolve) => {
    dialog.replaceChildren(
      h("form", { method: "dialog" },
        h("h2", { id: "question-title" }, title),
        h("p", {}, text),
        h("p", { class: "actions" },
          h("button", { value: "yes", class: "danger" }, agree),
          h("button", { value: "no", autofocus: true }, "Cancel"))));
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.returnValue = "no";
    dialog.showModal();
  });
}
