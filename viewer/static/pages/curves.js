// Curves of several runs, one chart per metric and one line per run.
import { getJson, urlOf } from "../api.js";
import { lineChart } from "../chart.js";
import { h } from "../dom.js";
import { addKeys } from "../keys.js";
import { follow } from "../live.js";
import { hrefOf, setQuery } from "../router.js";

const MOST_RUNS = 16;
const RUN_POINTS = 300;
const X_LABELS = { step: "step", tokens: "tokens", time: "seconds" };
const USUAL_METRICS = ["eval/success", "rollout/success", "rollout/reward", "rollout/turns", "train/entropy", "train/kl", "train/loss", "timing_s/step"];

export async function showCurves({ root, query, title, signal }) {
  const { runs: all } = await getJson(["runs"], {}, signal);
  const chosen = [...new Set(query.getAll("run"))].map((id) => all.find((run) => run.id === id)).filter(Boolean).slice(0, MOST_RUNS);
  const heading = `Curves of ${chosen.length === 1 ? "one run" : `${chosen.length} runs`}`;
  title(heading);
  root.replaceChildren(h("h1", {}, heading));
  if (!chosen.length) {
    root.append(h("p", {}, "Tick runs in the ", h("a", { href: hrefOf([]) }, "list of runs"), " to see their curves together."));
    return;
  }
  let axis = query.get("x") in X_LABELS ? query.get("x") : "step";
  const asked = query.getAll("key");
  const place = h("div", { class: "charts" });
  const known = h("datalist", { id: "metric-names" });
  root.append(
    h("p", {}, chosen.flatMap((run, at) => [at ? ", " : "", h("a", { href: hrefOf(["runs", run.id]) }, run.name), ` (${run.ended ?? "not known"})`])),
    h("div", { class: "toolbar" }, axes(), metricForm()),
    h("section", {}, h("h2", { class: "unseen" }, "Curves"), place),
  );
  let drawn = new Map();
  await draw();
  addKeys(signal, [{ key: "x", text: "the next x axis: step, tokens, time", run: () => choose(following()) }]);
  for (const run of chosen.filter(({ ended }) => ended === "running")) follow(run, signal, draw);
  getJson(["runs", chosen[0].id], {}, signal).then(({ keys }) => known.replaceChildren(...keys.map((key) => h("option", { value: key }))), () => {});

  function axes() {
    return h("fieldset", { class: "choice" }, h("legend", {}, "x axis"), Object.keys(X_LABELS).map((each) =>
      h("label", {}, h("input", { type: "radio", name: "axis", value: each, checked: each === axis, onchange: () => choose(each) }), ` ${each}`)));
  }

  function metricForm() {
    const field = h("input", { type: "text", list: "metric-names", spellcheck: false });
    const add = async (event) => {
      event.preventDefault();
      const name = field.value.trim();
      if (!name || metrics().includes(name)) return;
      asked.push(name);
      setQuery({ key: asked });
      field.value = "";
      await draw();
    };
    return h("form", { class: "filters", onsubmit: add }, h("label", { class: "filter" }, "Metric", field), known, h("button", { type: "submit" }, "Add a chart"));
  }

  function following() {
    const names = Object.keys(X_LABELS);
    return names[(names.indexOf(axis) + 1) % names.length];
  }

  async function choose(name) {
    axis = name;
    setQuery({ x: name === "step" ? null : name });
    for (const each of root.querySelectorAll("input[name=axis]")) each.checked = each.value === name;
    place.replaceChildren();
    drawn = new Map();
    await draw();
  }

  function metrics() {
    return [...new Set([...USUAL_METRICS, ...asked])];
  }

  async function draw() {
    const keys = metrics();
    const got = await Promise.all(chosen.map((run) => getJson(["runs", run.id, "curves"], { keys: keys.join(","), x: axis, points: RUN_POINTS }, signal)));
    for (const key of keys) {
      const data = together(got, key);
      const isKnown = data.series.some(({ last }) => last.some((value) => value !== null));
      if (drawn.has(key)) drawn.get(key).update(data);
      else if (isKnown || asked.includes(key)) {
        const csv = chosen.length === 1 ? urlOf(["runs", chosen[0].id, "curves.csv"], { keys: key }) : null;
        drawn.set(key, lineChart({ title: key, xLabel: X_LABELS[axis], csv, carries: true, ...data }));
        place.append(drawn.get(key));
      }
    }
  }

  // All runs on the places of all.
  function together(got, key) {
    const x = [...new Set(got.flatMap((each) => each.x))].sort((a, b) => a - b);
    const index = new Map(x.map((at, number) => [at, number]));
    const series = got.map((each, number) => {
      const line = { name: chosen[number].name, kind: "line" };
      for (const part of ["last", "low", "high"]) {
        line[part] = new Array(x.length).fill(null);
        each.x.forEach((at, bucket) => { line[part][index.get(at)] = each.series[key][part][bucket]; });
      }
      return line;
    });
    return { x, series };
  }
}
