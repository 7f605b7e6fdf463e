// Conversations: the live list, newest first, a hundred at a time, by policy and text.

import { get } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { compact, count, duration, number } from "../format.js";
import { panel, pill } from "../parts.js";
import { conversationLink, viewLink } from "../router.js";
import { table } from "../table.js";
import { stopsPanel } from "./stops.js";

const PAGE = 100;
const TYPING_MS = 300;

function listColumns(context) {
  const ago = (row) => duration(context.now() - row.last_ms);
  return [
    { title: "Conversation", fixed: true, value: (row) => row.id, cell: (row) => h("span", {},
      h("a", { href: conversationLink(row.id) }, row.id), row.is_stopped && pill("stopped", "bad")) },
    { title: "Model", fixed: true, class: "model", value: (row) => row.model },
    { title: "Profile", fixed: true, value: (row) => row.profile },
    { title: "Caller", fixed: true, value: (row) => row.caller, cell: (row) => h("code", { title: row.caller ?? "" }, (row.caller ?? "–").slice(0, 8)) },
    { title: "Requests", fixed: true, numeric: true, value: (row) => row.requests, cell: (row) => number(row.requests) },
    { title: "Calls", fixed: true, numeric: true, value: (row) => row.calls, cell: (row) => number(row.calls) },
    { title: "Blocked", fixed: true, numeric: true, value: (row) => row.blocked, cell: (row) => h("span", { class: row.blocked > 0 ? "hot" : "" }, number(row.blocked)) },
    { title: "Tokens removed", fixed: true, numeric: true, value: (row) => row.tokens_removed, cell: (row) => compact(row.tokens_removed) },
    { title: "Policies", fixed: true, class: "pills", value: (row) => row.policies.join(), cell: (row) => h("span", {}, row.policies.map((name) => pill(name))) },
    { title: "Last request", fixed: true, numeric: true, value: (row) => row.last_ms, cell: (row) => h("time", { "data-ms": row.last_ms }, `${ago(row)} ago`) },
  ];
}

/** The form that filters, and the links to other pages of the list. */
function filters(context) {
  const policy = h("select", { id: "policy", onchange: () => apply() }, h("option", { value: "" }, "Every policy"));
  const query = h("input", { type: "search", id: "query", placeholder: "Id, model, profile or caller", oninput: () => typed() });
  let typing = null;
  const apply = () => {
    clearTimeout(typing);
    context.go(viewLink("conversations", { policy: policy.value, query: query.value.trim() }));
  };
  const typed = () => {
    clearTimeout(typing);
    typing = setTimeout(apply, TYPING_MS);
  };
  const element = h("form", { class: "filters", role: "search", onsubmit: (event) => (event.preventDefault(), apply()) },
    h("label", {}, "Policy", policy), h("label", {}, "Search", query));
  return {
    element,
    close: () => clearTimeout(typing),
    set(params, names) {
      const chosen = params.get("policy") ?? "";
      const all = [...new Set([...names, chosen])].filter(Boolean).sort();
      replace(policy, all.join(), () => [h("option", { value: "" }, "Every policy"), ...all.map((name) => h("option", { value: name }, name))]);
      if (document.activeElement !== policy) policy.value = chosen;
      if (document.activeElement !== query) query.value = params.get("query") ?? "";
    },
  };
}

function pages({ label, below }) {
  const line = h("p", { class: "range", role: below ? null : "status" });
  const newer = h("a", { class: "button" }, "Newer");
  const older = h("a", { class: "button" }, "Older");
  const link = (element, params, page, isThere) => {
    const target = { policy: params.get("policy"), query: params.get("query"), page: page > 1 ? page : "" };
    if (isThere) element.setAttribute("href", viewLink("conversations", target));
    else element.removeAttribute("href");
    element.setAttribute("aria-disabled", String(!isThere));
  };
  return {
    element: h("nav", { class: below ? "pages below" : "pages", "aria-label": label }, line, newer, older),
    set(params, page, { total, conversations }) {
      const first = (page - 1) * PAGE;
      setText(line, total === 0 ? "None" : `${number(first + 1)} to ${number(first + conversations.length)} of ${count(total, "conversation")}`);
      link(newer, params, page - 1, page > 1);
      link(older, params, page + 1, first + conversations.length < total);
    },
  };
}

export const conversations = {
  name: "conversations",
  title: "Conversations",
  isPrivate: true,
  create(context, route) {
    const [form, stops] = [filters(context), stopsPanel(context)];
    const turners = [pages({ label: "Pages of the list" }), pages({ label: "Pages of the list, at its end", below: true })];
    const list = table({ caption: "Conversations, newest first", columns: listColumns(context), key: (row) => row.id,
      rowClass: (row) => (row.is_stopped ? "stopped" : ""),
      nothing: "No conversation here. One appears with its first request; a filter may hide others." });
    let params = route.params;
    const page = () => Math.max(1, Number.parseInt(params.get("page") ?? "1", 10) || 1);
    return {
      element: h("div", { class: "grid" }, stops.element, panel("Newest first", { wide: true, actions: turners[0].element }, form.element, list.element, turners[1].element)),
      async load(signal, now) {
        params = now;
        const query = new URLSearchParams({ limit: PAGE, offset: (page() - 1) * PAGE });
        for (const name of ["policy", "query"]) if (params.get(name)) query.set(name, params.get(name));
        const [listed, stopped] = await Promise.all([get(`api/conversations?${query}`, signal), stops.load(signal)]);
        return { listed, stopped };
      },
      show({ listed, stopped }, summary) {
        stops.set(stopped);
        form.set(params, (summary.policies ?? []).map((row) => row.policy));
        list.set(listed.conversations);
        for (const turner of turners) turner.set(params, page(), listed);
      },
      tick() {
        for (const element of list.body.querySelectorAll("time[data-ms]")) setText(element, `${duration(context.now() - Number(element.dataset.ms))} ago`);
      },
      close: () => form.close(),
    };
  },
};
