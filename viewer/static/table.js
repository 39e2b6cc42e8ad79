// Tables.
import { h } from "./dom.js";

// A column is `{title, cell(row), numeric, sortKey(row)}`; those with a key sort at a click on their head.
export function dataTable({ caption, columns, rows, empty = "nothing", hideCaption = false }) {
  const body = h("tbody", {});
  const heads = columns.map((column) => headOf(column, () => sortBy(column)));
  let sorted = null;

  function sortBy(column) {
    const descending = sorted?.column === column && !sorted.descending;
    sorted = { column, descending };
    heads.forEach((head, at) => {
      if (columns[at] === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    fill([...rows].sort((a, b) => (descending ? -1 : 1) * order(column.sortKey(a), column.sortKey(b))));
  }

  function fill(shown) {
    body.replaceChildren(...shown.map((row) => h("tr", {}, columns.map((column) => cellOf(column, row)))));
    if (!shown.length) body.append(h("tr", {}, h("td", { colspan: columns.length, class: "muted" }, empty)));
  }

  fill(rows);
  const name = h("caption", { class: hideCaption ? "unseen" : null }, caption);
  const table = h("table", { class: "data" }, name, h("thead", {}, h("tr", {}, heads)), body);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
}

function headOf(column, onSort) {
  const title = column.sortKey ? h("button", { type: "button", class: "sort", onclick: onSort }, column.title) : column.title;
  return h("th", { scope: "col", class: column.numeric ? "numeric" : null }, title);
}

function cellOf(column, row) {
  return h("td", { class: column.numeric ? "numeric" : null }, column.cell(row));
}

function order(a, b) {
  // what is not recorded comes last
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return a < b ? -1 : 1;
}
