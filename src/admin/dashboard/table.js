// A sortable table. Rows are kept by key and changed in place; on a narrow screen each row becomes a card.

import { h, keyed, replace, setText } from "./dom.js";
import { empty } from "./parts.js";

/**
 * `columns`: `{ title, value(row), cell(row), numeric, fixed }`. `value` sorts and is shown where there is no `cell`,
 * which returns text or an element. `fixed` columns are not sortable. The first column names the row.
 */
export function table({ caption, columns, key, nothing, sort = null, descending = true, rowClass, dense }) {
  const order = { column: sort, descending };
  const heads = columns.map((column, index) => head(column, () => sortBy(index)));
  const body = h("tbody", { role: "rowgroup" });
  const grid = h("table", { role: "table" },
    h("caption", { class: "hidden" }, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)),
    body);
  const none = empty(nothing);
  const element = h("div", { class: dense ? "table dense" : "table" }, grid, none);
  let rows = [];

  function sortBy(index) {
    order.descending = order.column === index ? !order.descending : Boolean(columns[index].numeric);
    order.column = index;
    draw();
  }

  function draw() {
    heads.forEach((cell, index) => {
      const isSorted = order.column === index;
      if (isSorted) cell.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    const sorted = order.column === null ? rows : [...rows].sort(comparison(columns[order.column], order.descending));
    keyed(body, sorted, {
      key,
      create: () => h("tr", { role: "row" }, columns.map(cell)),
      update: (line, row) => {
        if (rowClass) line.className = rowClass(row);
        const signature = JSON.stringify(row);
        if (line.signature === signature) return;
        line.signature = signature;
        columns.forEach((column, index) => fill(line.children[index], column, row, signature));
      },
    });
    grid.hidden = rows.length === 0;
    none.hidden = rows.length > 0;
  }

  return {
    element,
    body,
    set(next) {
      rows = next;
      draw();
    },
  };
}

function head(column, onclick) {
  const name = column.fixed ? column.title : h("button", { type: "button", onclick }, column.title);
  return h("th", { scope: "col", role: "columnheader", class: column.numeric ? "numeric" : null }, name);
}

function cell(column, index) {
  const kind = column.numeric ? "numeric" : column.class ?? (index === 0 ? "name" : null);
  return index === 0
    ? h("th", { scope: "row", role: "rowheader", class: kind })
    : h("td", { role: "cell", class: kind, "data-label": column.title });
}

function fill(element, column, row, signature) {
  const shown = column.cell ? column.cell(row) : column.value(row);
  if (shown instanceof Node) replace(element, signature, () => shown);
  else setText(element, shown === null || shown === undefined ? "–" : String(shown));
}

function comparison(column, descending) {
  const sign = descending ? -1 : 1;
  return (left, right) => {
    const [a, b] = [column.value(left), column.value(right)];
    const unknown = (value) => value === null || value === undefined;
    if (unknown(a) || unknown(b)) return unknown(a) - unknown(b);
    return sign * (typeof a === "string" ? a.localeCompare(String(b)) : a - b);
  };
}
