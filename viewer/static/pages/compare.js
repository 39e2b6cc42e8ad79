// Two runs: which tasks each wins, the difference with its interval, what differs in recipes and packages.
import { getJson } from "../api.js";
import { h } from "../dom.js";
import { hrefOf } from "../router.js";
import { dataTable } from "../table.js";
import { countOf, orMissing, shareOf } from "../text.js";

const MOST_TASKS = 2000;
const KINDS = [["a_only", "won by A only"], ["b_only", "won by B only"], ["both", "won by both"], ["none", "won by none"]];

export async function showCompare({ root, query, title, signal }) {
  const { runs } = await getJson(["runs"], {}, signal);
  const [a, b] = [query.get("a") ?? "", query.get("b") ?? ""];
  title("Compare two runs");
  root.replaceChildren(h("h1", {}, "Compare two runs"), choices(runs, a, b));
  if (!a || !b) {
    root.append(h("p", { class: "muted" }, "Choose two runs."));
    return;
  }
  const found = await getJson(["compare"], { a, b }, signal);
  const name = (id) => runs.find((run) => run.id === id)?.name ?? id;
  title(`${name(a)} and ${name(b)}`);
  root.append(tally(found), tasks(found, a, b), recipe(found), packages(found));
}

function choices(runs, a, b) {
  const choice = (label, given) => h("label", { class: "filter" }, label, h("select", {}, h("option", { value: "" }, "–"), runs.map((run) => h("option", { value: run.id, selected: run.id === given }, run.name))));
  const fields = [choice("A", a), choice("B", b)];
  const go = (event) => {
    event.preventDefault();
    const [first, second] = fields.map((field) => field.querySelector("select").value);
    location.hash = hrefOf(["compare"], { a: first, b: second });
  };
  return h("form", { class: "filters", onsubmit: go }, fields, h("button", { type: "submit" }, "Compare"));
}

function tally({ counts, difference }) {
  const points = (value) => (value === null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(100 * value).toFixed(1)}`);
  const interval = difference.low === null ? "" : ` [${points(difference.low)}, ${points(difference.high)}]`;
  const said = difference.mean === null ? "They have no task in common." : `B less A: ${points(difference.mean)} points of success${interval}, over the tasks of both, with an interval of 95 %.`;
  return h("section", {}, h("p", { class: "big" }, said), h("dl", { class: "facts" }, KINDS.map(([kind, text]) => h("div", {}, h("dt", {}, text), h("dd", {}, countOf(counts[kind]))))));
}

function tasks(found, a, b) {
  const side = (run, each, value) => (value === null ? "not played" : h("a", { href: hrefOf(["runs", run, "task"], { environment: each.environment, task: each.task }) }, shareOf(value)));
  const gap = (each) => (each.a === null || each.b === null ? null : each.b - each.a);
  const columns = [
    { title: "Environment", cell: (each) => each.environment, sortKey: (each) => each.environment },
    { title: "Task", cell: (each) => each.task, sortKey: (each) => each.task },
    { title: "A", numeric: true, cell: (each) => side(a, each, each.a), sortKey: (each) => each.a },
    { title: "B", numeric: true, cell: (each) => side(b, each, each.b), sortKey: (each) => each.b },
    { title: "B less A", numeric: true, cell: (each) => { const value = gap(each); return value === null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(100 * value).toFixed(0)}`; }, sortKey: gap },
  ];
  const rows = [...found.tasks].sort((first, second) => Math.abs(gap(second) ?? 0) - Math.abs(gap(first) ?? 0));
  const more = rows.length > MOST_TASKS ? h("p", { class: "muted" }, `${countOf(rows.length - MOST_TASKS)} tasks that differ less are not shown.`) : null;
  return h("section", {}, h("h2", {}, "Tasks"), dataTable({ caption: "Success by task, largest differences first", columns, rows: rows.slice(0, MOST_TASKS), empty: "no evaluation is recorded" }), more);
}

function recipe({ recipe: lines }) {
  const kinds = { "+": "added", "-": "removed", "@": "place" };
  const body = lines.slice(2).map((line) => h("span", { class: `diff ${kinds[line[0]] ?? ""}` }, `${line}\n`));
  return h("section", {}, h("h2", {}, "Recipes"), lines.length ? h("pre", { class: "code scroll", tabindex: "0", role: "region", "aria-label": "Difference of the recipes" }, body) : h("p", {}, "They are the same."));
}

function packages({ packages: all }) {
  const differ = all.filter((each) => each.a !== each.b);
  const columns = [
    { title: "Package", cell: (each) => each.name },
    { title: "A", cell: (each) => orMissing(each.a) },
    { title: "B", cell: (each) => orMissing(each.b) },
  ];
  return h("section", {}, h("h2", {}, "Packages"), differ.length ? dataTable({ caption: "Packages of different versions", hideCaption: true, columns, rows: differ }) : h("p", {}, "They are the same."));
}
