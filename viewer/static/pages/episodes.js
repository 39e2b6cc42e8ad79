// Episodes of a run by a search and filters, all of which stand in the address; a page at a time.
import { getJson } from "../api.js";
import { h } from "../dom.js";
import { addKeys } from "../keys.js";
import { follow, onceFree } from "../live.js";
import { hrefOf, setQuery } from "../router.js";
import { fillSlot } from "../slots.js";
import { dataTable } from "../table.js";
import { countOf, numberOf, orMissing, yesOrNo } from "../text.js";

const PAGE = 50;
const TYPING_MS = 250;
const FILTERS = ["words", "environment", "stage", "ending", "success", "purpose", "mode", "task", "group", "step_from", "step_to", "where", "order"];

export async function showEpisodes({ root, parameters, query, signal, title }) {
  const { run } = parameters;
  const described = await getJson(["runs", run], {}, signal);
  title(`Episodes of ${described.name}`);
  let offset = Number(query.get("offset")) || 0;
  let total = 0;
  let asked = 0;
  let waiting = null;
  const inputs = makeInputs(described, query);
  const whereProblem = h("pre", { class: "problem", id: "where-problem", role: "alert" });
  inputs.where.setAttribute("aria-describedby", "where-problem");
  const list = h("div", {});
  const count = h("p", { class: "count", role: "status" });
  const before = h("button", { type: "button", onclick: () => turnPage(-1) }, "← Newer");
  const after = h("button", { type: "button", onclick: () => turnPage(1) }, "Older →");
  const toolbar = h("div", { class: "toolbar" }, before, after, h("button", { type: "button", onclick: clear }, "Clear filters"));
  const form = h(
    "form",
    { class: "filters", role: "search", "aria-label": "Filter episodes", onsubmit: (event) => { event.preventDefault(); change(); } },
    Object.entries(inputs).map(([name, input]) => h("label", { class: `filter ${name}` }, LABELS[name], input)),
    whereProblem,
  );
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(change, TYPING_MS); });
  fillSlot("episodes", toolbar, { run, query: current(), signal });
  root.replaceChildren(h("h1", {}, `Episodes of ${described.name}`), form, h("div", { class: "row" }, count, toolbar), list);
  await load();
  addKeys(signal, [
    { key: "/", text: "search", run: () => inputs.words.focus() },
    { key: "w", text: "write an expression", run: () => inputs.where.focus() },
    { key: "Escape", text: "from a field to the list", run: () => focusRow(0) },
    { key: "j", text: "next episode of the list; Enter opens it", run: () => focusRow(1) },
    { key: "k", text: "previous episode of the list", run: () => focusRow(-1) },
    { key: "n", text: "next page", run: () => turnPage(1) },
    { key: "p", text: "previous page", run: () => turnPage(-1) },
  ]);
  follow(described, signal, () => onceFree(list, signal, load));

  function current() {
    const found = new URLSearchParams();
    for (const name of FILTERS) {
      const kept = query.getAll(name);
      const value = inputs[name]?.value.trim() ?? "";
      // an address may repeat a filter, of which a field shows the first
      const values = inputs[name] && value !== (kept[0] ?? "") ? [value] : kept;
      for (const each of values) if (each) found.append(name, each);
    }
    return found;
  }

  async function change() {
    clearTimeout(waiting);
    const wanted = current();
    if (wanted.toString() === asked) return;
    offset = 0;
    await load();
  }

  async function load() {
    const wanted = current();
    asked = wanted.toString();
    const number = asked;
    setQuery({ ...Object.fromEntries(FILTERS.map((name) => [name, wanted.getAll(name)])), offset: offset || null });
    for (const name of FILTERS) { query.delete(name); for (const each of wanted.getAll(name)) query.append(name, each); }
    let page;
    try {
      page = await getJson(["runs", run, "episodes"], [...wanted, ["offset", offset], ["limit", PAGE]], signal);
    } catch (error) {
      if (!signal.aborted && number === asked) refuse(error);
      return;
    }
    // an answer that was overtaken
    if (signal.aborted || number !== asked) return;
    whereProblem.textContent = "";
    inputs.where.removeAttribute("aria-invalid");
    draw(page);
  }

  function refuse(error) {
    // of an expression, the text has a mark below the place
    const isWhere = error.message.includes("\n");
    whereProblem.textContent = error.message;
    if (isWhere) inputs.where.setAttribute("aria-invalid", "true");
    count.textContent = isWhere ? "the expression is not right yet" : "nothing was found";
  }

  function draw(page) {
    total = page.total;
    const last = offset + page.episodes.length;
    const all = page.exact ? countOf(total) : `more than ${countOf(total)}`;
    count.textContent = page.episodes.length ? `${countOf(offset + 1)} to ${countOf(last)} of ${all}` : "no episode is like that";
    before.disabled = offset === 0;
    after.disabled = page.exact ? last >= total : page.episodes.length < PAGE;
    list.replaceChildren(dataTable({ caption: "Episodes", hideCaption: true, columns: COLUMNS(run), rows: page.episodes, empty: "no episode is like that" }));
  }

  function turnPage(by) {
    if (by < 0 ? before.disabled : after.disabled) return;
    offset = Math.max(0, offset + by * PAGE);
    load();
  }

  function clear() {
    for (const name of FILTERS) query.delete(name);
    for (const input of Object.values(inputs)) input.value = "";
    change();
  }

  function focusRow(by) {
    const links = [...list.querySelectorAll("tbody a.open")];
    const at = links.indexOf(document.activeElement);
    (links[at < 0 ? 0 : Math.max(0, Math.min(links.length - 1, at + by))])?.focus();
  }
}

const LABELS = {
  words: "Search",
  where: "Where",
  success: "Success",
  environment: "Environment",
  stage: "Stage",
  ending: "Ended by",
  purpose: "Played for",
  mode: "Mode",
  task: "Task",
  step_from: "Step from",
  step_to: "to",
  order: "Order",
};

function makeInputs(described, query) {
  const { columns, stages } = described;
  const text = (name, more) => h("input", { type: "text", name, value: query.get(name) ?? "", autocomplete: "off", spellcheck: "false", ...more });
  const number = (name) => h("input", { type: "number", name, min: "0", step: "1", value: query.get(name) ?? "" });
  const choice = (name, values) => {
    const given = query.get(name) ?? "";
    const known = [...new Set([...values, given])].filter(Boolean);
    return h("select", { name }, h("option", { value: "" }, "any"), known.map((each) => h("option", { value: each, selected: each === given }, each)));
  };
  return {
    words: text("words", { type: "search", placeholder: "words in the text" }),
    where: text("where", { placeholder: "reward > 0 and turns > 5", class: "code" }),
    success: choice("success", ["true", "false"]),
    environment: choice("environment", columns.environment),
    stage: choice("stage", [...new Set(stages.map((stage) => stage.name))]),
    ending: choice("ending", columns.ending),
    purpose: choice("purpose", columns.purpose),
    mode: choice("mode", columns.mode),
    task: text("task"),
    step_from: number("step_from"),
    step_to: number("step_to"),
    order: h("select", { name: "order" }, ["newest", "oldest"].map((each) => h("option", { value: each === "newest" ? "" : each, selected: query.get("order") === each }, each))),
  };
}

const COLUMNS = (run) => [
  { title: "Id", cell: (each) => h("a", { class: "open", href: hrefOf(["runs", run, "episodes", each.id]) }, each.id) },
  { title: "Step", numeric: true, cell: (each) => numberOf(each.step) },
  { title: "Task", cell: (each) => h("a", { class: "task", href: hrefOf(["runs", run, "task"], { environment: each.environment, task: each.task }) }, `${each.environment} / ${each.task}`) },
  { title: "Played for", cell: (each) => `${each.purpose}${each.mode && each.mode !== "sampled" ? `, ${each.mode}` : ""}` },
  { title: "Success", cell: (each) => h("span", { class: each.success ? "badge won" : "badge" }, yesOrNo(each.success)) },
  { title: "Ended by", cell: (each) => each.ending },
  { title: "Reward", numeric: true, cell: (each) => numberOf(each.reward) },
  { title: "Advantage", numeric: true, cell: (each) => numberOf(each.advantage) },
  { title: "Turns", numeric: true, cell: (each) => numberOf(each.turns) },
  { title: "First line", cell: (each) => h("span", { class: "line" }, orMissing(each.first_line)) },
];
