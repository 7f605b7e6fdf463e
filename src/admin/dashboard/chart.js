// Charts over time, drawn by uPlot (uplot/). The numbers are also a table, for screen readers and for copying.

import { h, setText } from "./dom.js";
import { compact, number } from "./format.js";

const HEIGHT = 190;
const HALF_MINUTE = 30;
const minute = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

/** The colour that a CSS variable of this page has now, in the scheme in force. */
function colour(name) {
  const probe = h("span", { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** `series`: `{ label, colour: "--name", bars }`, drawn in this order. `set` takes the beginning of each minute, in seconds, and one list per series. */
export function chart({ title, unit, series }) {
  const readout = h("span", { class: "readout" });
  const plotted = h("div", { class: "plot", role: "img", "aria-label": title });
  const numbers = h("div", { class: "numbers", tabindex: "0", role: "group", "aria-label": `${title}: numbers` });
  const details = h("details", { ontoggle: () => fillNumbers() }, h("summary", {}, "Numbers"), numbers);
  const legend = h("span", { class: "legend" },
    series.map((one) => h("span", { class: "key" }, swatch(one), one.label)));
  const element = h("figure", { class: "chart" },
    h("figcaption", {}, h("span", { class: "chart-title" }, title), legend, readout), plotted, details);
  let data = [[], ...series.map(() => [])];
  let plot = null;

  function draw() {
    plot?.destroy();
    plot = null;
    const width = plotted.clientWidth;
    if (width > 0 && data[0].length > 0) plot = new window.uPlot(options(width), data, plotted);
  }

  function options(width) {
    const [ink, line] = [colour("--faint"), colour("--line")];
    const axis = { stroke: ink, font: "11px system-ui, sans-serif", ticks: { show: false } };
    return {
      width,
      height: HEIGHT,
      padding: [10, 8, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { range: span }, y: { range: (_, __, most) => [0, Math.max(4, most * 1.1)] } },
      axes: [
        { ...axis, grid: { show: false }, space: 60, size: 26, values: (_, ticks) => ticks.map(minute) },
        { ...axis, grid: { stroke: line, width: 1 }, size: 44, space: 36, values: (_, ticks) => ticks.map(compact) },
      ],
      series: [{}, ...series.map(drawn)],
      hooks: { setCursor: [(self) => show(self.cursor.idx)] },
    };
  }

  /** From the first minute, or a quarter of an hour before the last, to the last. uPlot's own range for one point is a day. */
  function span() {
    const [first, last] = [data[0][0], data[0].at(-1)];
    return [Math.min(first, last - 900) - HALF_MINUTE, last + HALF_MINUTE];
  }

  function show(index) {
    const at = index ?? data[0].length - 1;
    const parts = series.map((one, which) => `${number(data[which + 1][at])} ${one.label.toLowerCase()}`);
    setText(readout, sums().every((sum) => sum === 0) ? "Nothing in the last hour" : `${minute(data[0][at])}: ${parts.join(", ")}`);
  }

  const sums = () => data.slice(1).map((values) => values.reduce((sum, value) => sum + value, 0));

  function fillNumbers() {
    if (!details.open) return;
    const row = (at) => h("tr", {}, h("th", { scope: "row" }, minute(at.time)), at.values.map((value) => h("td", {}, number(value))));
    const rows = data[0].map((time, index) => ({ time, values: series.map((_, which) => data[which + 1][index]) }));
    numbers.replaceChildren(h("table", {},
      h("caption", { class: "hidden" }, title),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Minute"), series.map((one) => h("th", { scope: "col" }, one.label)))),
      h("tbody", {}, rows.reverse().map(row))));
  }

  new ResizeObserver(() => plot?.width !== plotted.clientWidth && draw()).observe(plotted);
  const redraw = () => draw();
  addEventListener("schemechange", redraw);
  return {
    element,
    set(times, values) {
      const isFirst = !plot;
      data = [times, ...values];
      const parts = sums().map((sum, which) => `${number(sum)} ${series[which].label.toLowerCase()}`);
      plotted.setAttribute("aria-label", `${title}, in ${unit}, over the last hour: ${parts.join(", ")}.`);
      if (isFirst) draw();
      else plot.setData(data);
      show(null);
      fillNumbers();
    },
    close() {
      removeEventListener("schemechange", redraw);
      plot?.destroy();
    },
  };
}

function swatch(one) {
  const element = h("span", { class: "swatch" });
  element.style.background = `var(${one.colour})`;
  return element;
}

function drawn(one) {
  const stroke = colour(one.colour);
  return {
    label: one.label,
    stroke,
    fill: one.bars ? stroke : stroke.replace("rgb(", "rgba(").replace(")", ", 0.14)"),
    width: one.bars ? 0 : 2,
    paths: one.bars ? window.uPlot.paths.bars({ size: [0.72, 14], radius: 0.2 }) : window.uPlot.paths.spline(),
    // A line needs two points: one alone is drawn as a dot.
    points: { show: (plot) => !one.bars && plot.data[0].length === 1, size: 7, fill: stroke },
  };
}
