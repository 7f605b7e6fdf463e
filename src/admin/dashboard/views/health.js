// Health: errors, delays, the state store, reloads, rules that fit no tool, and the configuration in force beside the file's.

import { get } from "../api.js";
import { h, setText } from "../dom.js";
import { count, milliseconds, number, percent, share, time } from "../format.js";
import { bar, figure, panel } from "../parts.js";
import { session } from "../session.js";
import { table } from "../table.js";

/** The configuration as lines of dotted keys. */
function flat(value, path = "") {
  const isTable = value !== null && typeof value === "object" && !Array.isArray(value);
  if (!isTable || Object.keys(value).length === 0) return [{ key: path, value: shown(value) }];
  return Object.entries(value).flatMap(([name, inner]) => flat(inner, path ? `${path}.${name}` : name));
}

function shown(value) {
  if (value === undefined) return "not set";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** What became of reloads; `last_ms` is the time of the start until one succeeds. */
function reloaded({ ok, refused, last_ms: last }) {
  if (ok + refused === 0) return "none since the start";
  const success = ok > 0 ? `last success at ${time(last ?? NaN)}` : "the configuration of the start is in force";
  return `${number(refused)} refused, ${success}`;
}

function figures() {
  const all = { delay: figure("Overhead, p99"), errors: figure("Failed requests", { tone: "amber" }), streams: figure("Open streams"),
    store: figure("State store"), reloads: figure("Reloads", { tone: "amber" }), recorder: figure("Recorder") };
  return {
    element: h("dl", { class: "figures" }, Object.values(all).map((one) => one.element)),
    set(data) {
      const failed = data.errors.reduce((sum, row) => sum + row.requests, 0);
      all.delay.set(milliseconds(data.overhead_ms.p99), `p50 ${milliseconds(data.overhead_ms.p50)}`);
      all.errors.set(number(failed), `${percent(share(failed, data.requests))} of ${count(data.requests, "request")}`, failed > 0);
      all.streams.set(number(data.streams), "answers being written");
      all.store.set(data.store.up ? "up" : "away", `${data.store.kind}, ${count(data.store.errors, "error")}`, !data.store.up);
      all.reloads.set(number(data.reloads.ok), reloaded(data.reloads), data.reloads.refused > 0);
      const on = data.recorder?.on;
      all.recorder.set(on ? "on" : "off", on ? `${count(data.recorder.dropped, "record")} dropped` : "no request is recorded", Boolean(on && data.recorder.dropped > 0));
    },
  };
}

/** Names and patterns in the settings that no tool has; hidden where there are none. */
function rules() {
  const line = h("p", { class: "note" });
  const list = table({ caption: "Rules that fit no tool", key: (row) => `${row.key} ${row.pattern}`, nothing: "Every rule fits a tool.", columns: [
    { title: "Key", fixed: true, value: (row) => row.key, cell: (row) => h("code", {}, row.key) },
    { title: "Name or pattern", fixed: true, value: (row) => row.pattern, cell: (row) => h("code", {}, row.pattern) },
    { title: "Did you mean", fixed: true, value: (row) => row.near ?? "", cell: (row) => row.near ? h("code", {}, row.near) : "–" },
  ] });
  const element = panel("Rules that fit no tool", { wide: true }, line, list.element);
  return {
    element,
    set(found) {
      const unfitted = found?.unfitted ?? [];
      element.hidden = unfitted.length === 0;
      setText(line, `None of the ${count(found?.tools ?? 0, "tool")} declared or used since the start fits them, so they have no effect yet.`);
      list.set(unfitted);
    },
  };
}

function configuration() {
  const filter = h("input", { type: "search", id: "keys", placeholder: "budget, upstream …", oninput: () => draw() });
  const list = table({ caption: "Configuration in force", key: (row) => row.key, nothing: "No key contains this.", columns: [
    { title: "Key", fixed: true, value: (row) => row.key, cell: (row) => h("code", {}, row.key) },
    { title: "Value", fixed: true, class: "words", value: (row) => row.value, cell: (row) => h("code", {}, row.value) },
  ] });
  let rows = [];
  function draw() {
    const wanted = filter.value.trim().toLowerCase();
    list.set(rows.filter((row) => row.key.toLowerCase().includes(wanted)));
  }
  const file = h("p", { class: "note" });
  return {
    element: panel("Configuration in force", { wide: true, actions: h("label", {}, "Find a key", filter) }, file, list.element),
    set(config, { path, hash }) {
      rows = flat(config);
      setText(file, `${path ? `From ${path}` : "The shipped configuration: no file is given"}. Hash ${hash}. Secrets are hidden.`);
      draw();
    },
  };
}

/** What models refuse, with what that costs. */
function refusals() {
  const whom = (row) => row.callers === "all" ? "all callers" : "the callers who met it";
  const list = table({ caption: "What models refuse", key: (row) => `${row.model}\n${row.kind}\n${row.callers}`,
    nothing: "No model has refused the form of a request.", columns: [
      { title: "Model", value: (row) => row.model, cell: (row) => h("code", {}, row.model) },
      { title: "Refused", value: (row) => row.kind },
      { title: "Counts for", value: whom },
      { title: "Requests in another form", value: (row) => row.avoided, numeric: true, cell: (row) => number(row.avoided) },
      { title: "Last", value: (row) => row.last_ms, cell: (row) => time(row.last_ms) },
      { title: "What it costs", class: "words", value: (row) => row.cost },
    ] });
  return {
    element: panel("What models refuse", { wide: true, note: "A refusal counts for the caller whose request met it, and for all callers once two have met it." }, list.element),
    set: (rows) => list.set(rows ?? []),
  };
}

function difference() {
  const line = h("p", { class: "note" });
  const list = table({ caption: "Difference to the file", key: (row) => row.key, nothing: "No key differs.", columns: [
    { title: "Key", fixed: true, value: (row) => row.key, cell: (row) => h("code", {}, row.key) },
    { title: "In force", fixed: true, class: "words", value: (row) => shown(row.in_force), cell: (row) => h("code", {}, shown(row.in_force)) },
    { title: "In the file", fixed: true, class: "words", value: (row) => shown(row.in_file), cell: (row) => h("code", {}, shown(row.in_file)) },
  ] });
  return {
    element: panel("Difference to the file", { wide: true }, line, list.element),
    set(data) {
      const text = !data ? "Sign in to compare with the file on disk."
        : !data.path ? "There is no file to compare with."
          : data.changed.length === 0 ? `${data.path} is what is in force.`
            : `${data.path} says something else. Reload or restart toolrein to put it in force.`;
      setText(line, text);
      list.element.hidden = !data?.path || data.changed.length === 0;
      list.set(data?.changed ?? []);
    },
  };
}

export const health = {
  name: "health",
  title: "Health",
  create() {
    const [numbers, unfitted, config, changed, refused] = [figures(), rules(), configuration(), difference(), refusals()];
    let all = 1;
    const errors = table({ caption: "Failed requests by status", key: (row) => row.status, sort: 1, nothing: "No request has failed.", columns: [
      { title: "Status", value: (row) => String(row.status) },
      { title: "Requests", value: (row) => row.requests, numeric: true, cell: (row) => h("span", { class: "with-bar" }, number(row.requests),
        bar(share(row.requests, all), `${percent(share(row.requests, all))} of the failed requests`)) },
    ] });
    return {
      element: h("div", { class: "grid" }, numbers.element, panel("Failed requests by status", { wide: true }, errors.element),
        refused.element, unfitted.element, changed.element, config.element),
      async load(signal) {
        const parts = [get("api/health", signal), get("config", signal), session.isSignedIn ? get("api/config/difference", signal) : null];
        const [now, inForce, other] = await Promise.all(parts);
        return { now, inForce, other };
      },
      show({ now, inForce, other }) {
        all = Math.max(1, now.errors.reduce((sum, row) => sum + row.requests, 0));
        numbers.set(now);
        errors.set(now.errors);
        refused.set(now.refusals);
        unfitted.set(now.rules);
        changed.set(other);
        config.set(inForce, now.config);
      },
    };
  },
};
