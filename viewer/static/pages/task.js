// One task over the steps of a run: all attempts, and the last that won next to the first that lost after it.
import { getJson } from "../api.js";
import { addChildren, h } from "../dom.js";
import { addKeys } from "../keys.js";
import { hrefOf } from "../router.js";
import { dataTable } from "../table.js";
import { countOf, numberOf, yesOrNo } from "../text.js";
import { sideBySideTable } from "./side-by-side.js";

const MOST_CHOSEN = 16;

export async function showTask({ root, parameters, query, signal, title }) {
  const { run } = parameters;
  const [environment, task] = ["environment", "task"].map((name) => query.get(name) ?? "");
  const { episodes } = await getJson(["runs", run, "history"], { environment, task }, signal);
  title(`${task} over steps`);
  const chosen = new Set();
  const open = () => { if (chosen.size) location.hash = hrefOf(["runs", run, "turns"], { id: [...chosen] }); };
  const compare = h("button", { type: "button", disabled: true, onclick: open }, "Compare those ticked");
  const columns = [
    { title: "Compare", cell: (each) => h("input", { type: "checkbox", "aria-label": `compare ${each.id}`, onchange: (event) => choose(each.id, event.target) }) },
    { title: "Step", numeric: true, cell: (each) => numberOf(each.step), sortKey: (each) => each.step },
    { title: "Episode", cell: (each) => h("a", { href: hrefOf(["runs", run, "episodes", each.id]) }, each.id) },
    { title: "Played for", cell: (each) => [each.purpose, each.mode].filter(Boolean).join(", ") },
    { title: "Success", cell: (each) => h("span", { class: each.success ? "badge won" : "badge" }, yesOrNo(each.success)), sortKey: (each) => each.success },
    { title: "Ended by", cell: (each) => each.ending },
    { title: "Reward", numeric: true, cell: (each) => numberOf(each.reward), sortKey: (each) => each.reward },
    { title: "Turns", numeric: true, cell: (each) => numberOf(each.turns), sortKey: (each) => each.turns },
  ];
  addChildren(root, [
    h("h1", {}, `${environment} / ${task}`),
    h("p", {}, summaryOf(episodes)),
    strip(run, episodes),
    await turningPoint(run, episodes, signal),
    h("h2", {}, "All attempts"),
    h("div", { class: "toolbar" }, compare),
    dataTable({ caption: `Attempts at ${task}`, hideCaption: true, columns, rows: episodes, empty: "no episode of this task is recorded" }),
  ]);
  addKeys(signal, [{ key: "c", text: "compare the attempts that are ticked", run: open }]);

  function choose(id, box) {
    if (box.checked && chosen.size < MOST_CHOSEN) chosen.add(id);
    else chosen.delete(id);
    box.checked = chosen.has(id);
    compare.disabled = !chosen.size;
  }
}

function summaryOf(episodes) {
  const won = episodes.filter((each) => each.success).length;
  return `${countOf(episodes.length)} attempts, ${countOf(won)} won.`;
}

// A mark for each attempt, in order of steps: a tick for one that won, a cross for one that did not.
function strip(run, episodes) {
  const steps = new Map();
  for (const each of episodes) steps.set(each.step, [...(steps.get(each.step) ?? []), each]);
  const items = [...steps].map(([step, tried]) =>
    h("li", {}, h("span", { class: "muted" }, numberOf(step)), tried.map((each) =>
      h("a", { class: each.success ? "try won" : "try", href: hrefOf(["runs", run, "episodes", each.id]), "aria-label": `step ${each.step}, ${each.mode ?? each.purpose}: ${each.success ? "won" : "not won"}` }, each.success ? "✓" : "✗"))));
  return h("ol", { class: "strip", "aria-label": "Attempts by step" }, items);
}

// The last attempt that won before it was lost for the first time, next to that one.
async function turningPoint(run, episodes, signal) {
  const played = episodes.filter((each) => each.purpose !== "demonstration");
  let pair = null;
  for (let at = 1; at < played.length && !pair; at += 1) {
    if (played[at - 1].success && !played[at].success && played[at].step > played[at - 1].step) pair = [played[at - 1], played[at]];
  }
  const won = played.find((each) => each.success);
  const lost = played.find((each) => !each.success);
  pair ??= won && lost ? [won, lost] : null;
  if (!pair) return null;
  const found = await getJson(["runs", run, "turns"], pair.map((each) => ["id", each.id]), signal);
  const [, other] = found.episodes;
  const differs = other.differs === null ? "they are the same in every turn" : `they first differ in turn ${other.differs}`;
  return h("section", {}, h("h2", {}, "Won and lost"), h("p", {}, `Won at step ${numberOf(pair[0].step)}, lost at step ${numberOf(pair[1].step)}: ${differs}.`), sideBySideTable(run, found.episodes));
}
