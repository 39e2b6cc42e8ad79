// All runs.
import { getJson } from "../api.js";
import { h } from "../dom.js";
import { addKeys } from "../keys.js";
import { hrefOf } from "../router.js";
import { spark } from "../spark.js";
import { dataTable } from "../table.js";
import { intervalOf, momentOf, numberOf, orMissing, shareOf } from "../text.js";

const RUNS_PERIOD_MS = 3000;

export async function showRuns({ root, signal, title }) {
  title("Runs");
  let { runs } = await getJson(["runs"], {}, signal);
  const chosen = new Set();
  const compare = h("button", { type: "button", disabled: true, onclick: () => open() }, "Compare two runs");
  const place = h("div", {});

  function open() {
    const [a, b] = [...chosen];
    if (chosen.size === 2) location.hash = hrefOf(["compare"], { a, b });
  }

  function choose(run, isChosen) {
    if (isChosen) chosen.add(run);
    else chosen.delete(run);
    compare.disabled = chosen.size !== 2;
  }

  const columns = [
    { title: "Run", cell: (run) => h("a", { href: hrefOf(["runs", run.id]) }, run.name), sortKey: (run) => run.name },
    { title: "Stage", cell: (run) => orMissing(run.stage), sortKey: (run) => run.stage },
    { title: "Step", numeric: true, cell: (run) => numberOf(run.total_step), sortKey: (run) => run.total_step },
    { title: "Success", numeric: true, cell: (run) => `${shareOf(run.success)} ${intervalOf(run.interval)}`, sortKey: (run) => run.success },
    { title: "Over steps", cell: (run) => (run.spark.length ? spark(run.spark, `success from ${shareOf(run.spark[0])} to ${shareOf(run.spark[run.spark.length - 1])}`) : "–") },
    { title: "Ended", cell: (run) => h("span", { class: run.ended === "running" ? "badge live" : "badge" }, run.ended ?? "not known"), sortKey: (run) => run.ended },
    { title: "Last written", cell: (run) => momentOf(run.time), sortKey: (run) => run.time },
    { title: "Compare", cell: (run) => h("input", { type: "checkbox", checked: chosen.has(run.id), "aria-label": `compare ${run.name}`, onchange: (event) => choose(run.id, event.target.checked) }) },
  ];
  const draw = () => place.replaceChildren(dataTable({ caption: "Runs, with success in % and its interval of 95 %", columns, rows: runs, empty: "no runs" }));
  draw();
  root.replaceChildren(h("h1", {}, "Runs"), h("div", { class: "toolbar" }, compare), place);
  addKeys(signal, [{ key: "c", text: "compare the two runs that are ticked", run: open }]);
  watch();

  async function watch() {
    await new Promise((done) => setTimeout(done, RUNS_PERIOD_MS));
    if (signal.aborted) return;
    const found = document.hidden ? null : await getJson(["runs"], {}, signal).catch(() => null);
    const hasFocus = place.contains(document.activeElement);
    if (found && !signal.aborted && !hasFocus && JSON.stringify(found.runs) !== JSON.stringify(runs)) {
      runs = found.runs;
      draw();
    }
    watch();
  }
}
