// One run: curves, stages, events, where its time goes, its recipe. A point of a curve leads to the episodes of its step.
import { getJson, urlOf } from "../api.js";
import { lineChart } from "../chart.js";
import { h } from "../dom.js";
import { planGraph } from "../graph.js";
import { addKeys } from "../keys.js";
import { follow, onceFree } from "../live.js";
import { hrefOf, setQuery } from "../router.js";
import { fillSlot } from "../slots.js";
import { dataTable } from "../table.js";
import { countOf, intervalOf, longText, momentOf, numberOf, orMissing, shareOf } from "../text.js";

const AXIS_LABELS = { step: "step", tokens: "tokens", time: "seconds" };
const POINTS = 600;
const MOST_TIMES = 6;
const MOST_EVALS = 200;
const MOST_EVENTS = 500;

// Titles and keys; of `time` the keys are those of the longest ops.
const CHARTS = [
  { title: "Success", keys: ["rollout/success"], evals: true },
  { title: "Reward", keys: ["rollout/reward", "rollout/score"] },
  { title: "Entropy", keys: ["train/entropy"] },
  { title: "KL", keys: ["train/kl", "reward/kl", "mismatch/kl"] },
  { title: "Loss", keys: ["train/loss", "train/policy_loss", "critic/loss"] },
  { title: "Horizon", keys: ["horizon/turns", "rollout/turns"], kind: "steps" },
  { title: "Guards", keys: ["train/skipped", "train/grad_norm", "group/zero_std_frac", "rollout/faults"] },
  { title: "Time", keys: [], times: true },
];

export async function showRun({ root, parameters, query, signal, title }) {
  const { run } = parameters;
  let axis = query.get("x") in AXIS_LABELS ? query.get("x") : "step";
  let described = await getJson(["runs", run], {}, signal);
  title(described.name);
  const charts = h("div", { class: "charts" });
  const below = h("div", {});
  const summary = h("p", { class: "muted" });
  const toolbar = h("div", { class: "toolbar" }, h("a", { class: "button", href: hrefOf(["runs", run, "episodes"]) }, "Episodes"), axisChoice());
  fillSlot("run", toolbar, { run, signal });
  root.replaceChildren(h("h1", {}, described.name), summary, toolbar, h("section", {}, h("h2", { class: "unseen" }, "Curves"), charts), below);
  const drawn = new Map();
  await draw();
  drawBelow();
  addKeys(signal, [
    { key: "e", text: "episodes of the run", run: () => { location.hash = hrefOf(["runs", run, "episodes"]); } },
    { key: "x", text: "the next x axis: step, tokens, time", run: () => chooseAxis(nextAxis()) },
  ]);
  follow(described, signal, async () => {
    const before = countsBelow();
    described = await getJson(["runs", run], {}, signal);
    await draw();
    // shares of the time change a little with each step, and are drawn anew with what is rarer
    if (before !== countsBelow()) await onceFree(below, signal, drawBelow);
  });

  function countsBelow() {
    return [described.evals, described.events, described.stages, described.plan, described.ops].map((each) => each.length).join();
  }

  function axisChoice() {
    return h("fieldset", { class: "choice" }, h("legend", {}, "x axis"), Object.keys(AXIS_LABELS).map((each) =>
      h("label", {}, h("input", { type: "radio", name: "axis", value: each, checked: each === axis, onchange: () => chooseAxis(each) }), ` ${each}`)));
  }

  function nextAxis() {
    const names = Object.keys(AXIS_LABELS);
    return names[(names.indexOf(axis) + 1) % names.length];
  }

  async function chooseAxis(name) {
    axis = name;
    setQuery({ x: name === "step" ? null : name });
    for (const each of toolbar.querySelectorAll("input[name=axis]")) each.checked = each.value === name;
    charts.replaceChildren();
    drawn.clear();
    await draw();
  }

  async function draw() {
    const { stages, keys, events, evals, num_episodes: count, num_damaged: damaged } = described;
    const last = stages[stages.length - 1];
    const steps = last ? `step ${countOf(last.to)}, stage ${last.name}` : "no steps yet";
    summary.textContent = `${steps}; ${countOf(count)} episodes${damaged ? `; ${countOf(damaged)} lines hold no episode` : ""}`;
    const wanted = CHARTS.map((chart) => ({ ...chart, keys: chart.times ? longestOps() : chart.keys.filter((key) => keys.includes(key)) }));
    const asked = [...new Set([...wanted.flatMap((chart) => chart.keys), "total_step"])];
    const [got, onSteps] = await Promise.all([ask(asked, axis), axis === "step" ? null : ask(["total_step"], axis)]);
    const steps_ = onSteps ? onSteps.series.total_step.last : got.x;
    const place = placer(got.x, steps_);
    for (const chart of wanted) {
      const data = dataOf(chart, got, evals, place);
      data.borders = stages.slice(1).map((stage) => ({ at: place(stage.from), name: stage.name })).filter(({ at }) => at !== null);
      data.flags = events.filter(({ kind, total_step: step }) => !["note", "prompt", "end"].includes(kind) && step !== null).map((event) => ({ ...event, at: place(event.total_step) })).filter(({ at }) => at !== null);
      if (!drawn.has(chart.title)) {
        const onPick = (at) => pick(drawn.get(chart.title).steps[at]);
        const csv = chart.keys.length ? urlOf(["runs", run, "curves.csv"], { keys: chart.keys.join(",") }) : null;
        const element = lineChart({ title: chart.title, xLabel: AXIS_LABELS[axis], onPick, csv, ...data });
        drawn.set(chart.title, { element });
        charts.append(element);
      } else drawn.get(chart.title).element.update(data);
      drawn.get(chart.title).steps = data.steps;
    }
  }

  function ask(keys, x) {
    return getJson(["runs", run, "curves"], { keys: keys.join(","), x, points: POINTS }, signal);
  }

  function longestOps() {
    const shares = new Map();
    for (const { kind, share } of described.ops) shares.set(kind, Math.max(share, shares.get(kind) ?? 0));
    const kinds = [...shares].sort((a, b) => b[1] - a[1]).slice(0, MOST_TIMES).map(([kind]) => `timing_s/${kind}`);
    return kinds.filter((key) => described.keys.includes(key));
  }

  function pick(step) {
    if (step !== null && step !== undefined) location.hash = hrefOf(["runs", run, "episodes"], { step_from: step, step_to: step });
  }

  function drawBelow() {
    const isOpen = new Set([...below.querySelectorAll("details[open]")].map((each) => each.id));
    const sections = [evaluations(), time(), eventList(), recipe()];
    below.replaceChildren(...sections.filter(Boolean));
    for (const each of below.querySelectorAll("details")) each.open ||= isOpen.has(each.id);
  }

  function evaluations() {
    // the mean of one environment is that environment
    const isOne = new Set(described.evals.map((each) => each.environment).filter((each) => each !== null)).size === 1;
    const rows = described.evals.filter((each) => !isOne || each.environment !== null).reverse().slice(0, MOST_EVALS);
    const columns = [
      { title: "Step", numeric: true, cell: (each) => h("a", { href: hrefOf(["runs", run, "episodes"], { step_from: each.total_step, step_to: each.total_step, purpose: "eval" }) }, numberOf(each.total_step)) },
      { title: "Environment", cell: (each) => each.environment ?? "mean of all" },
      { title: "Mode", cell: (each) => each.mode },
      { title: "Success, %", numeric: true, cell: (each) => shareOf(each.success) },
      { title: "Interval of 95 %", numeric: true, cell: (each) => intervalOf(each.interval) || "–" },
      { title: "Episodes", numeric: true, cell: (each) => numberOf(each.episodes) },
    ];
    return h("section", {}, h("h2", {}, "Evaluations"), dataTable({ caption: "Evaluations, newest first", hideCaption: true, columns, rows, empty: "none yet" }));
  }

  function time() {
    const stages = described.plan.length ? described.plan.map((each) => each.stage) : [...new Set(described.ops.map((each) => each.stage))];
    return h("section", {}, h("h2", {}, "Plan, with each op's share of the time"), stages.map((stage) => {
      const ops = described.plan.find((each) => each.stage === stage)?.ops ?? [];
      const shares = described.ops.filter((each) => each.stage === stage);
      const of = (kind) => shares.find((each) => each.kind === kind)?.share ?? null;
      const columns = [
        { title: "Op", cell: (each) => each.kind },
        { title: "Share of the time", numeric: true, cell: (each) => shareOf(each.share) },
        { title: "", cell: (each) => h("meter", { value: each.share, max: 1, "aria-label": `${each.kind}: ${shareOf(each.share)}` }) },
      ];
      return h("div", { class: "plan-stage" }, h("h3", {}, `Stage ${stage}`),
        ops.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Graph of stage ${stage}` }, planGraph(stage, ops, of)) : null,
        h("details", { id: `time-${stage}`, open: !ops.length }, h("summary", {}, `Table of stage ${stage}`), dataTable({ caption: `Time of stage ${stage}`, hideCaption: true, columns, rows: shares, empty: "not recorded" })));
    }));
  }

  function eventList() {
    const columns = [
      { title: "Step", numeric: true, cell: (each) => numberOf(each.total_step) },
      { title: "Time, UTC", cell: (each) => momentOf(each.time) },
      { title: "Kind", cell: (each) => h("span", { class: "badge" }, each.kind.replaceAll("_", " ")) },
      { title: "What", cell: (each) => orMissing(each.text) },
    ];
    return h("section", {}, h("h2", {}, "Events"), dataTable({ caption: "Events, newest first", hideCaption: true, columns, rows: [...described.events].reverse().slice(0, MOST_EVENTS), empty: "none recorded" }));
  }

  function recipe() {
    return h("section", {}, h("h2", {}, "Recipe"), h("details", { id: "recipe" }, h("summary", {}, "recipe.yaml, as resolved"), longText(described.recipe || orMissing(null), "text code")));
  }
}

// From a step to its place on the axis: the first bucket that has reached it.
function placer(x, steps) {
  const known = steps.map((step, at) => [step, x[at]]).filter(([step]) => step !== null);
  return (step) => {
    if (step === null || !known.length) return null;
    const found = known.find(([each]) => each >= step) ?? known[known.length - 1];
    return steps === x ? Math.max(known[0][0], Math.min(step, known[known.length - 1][0])) : found[1];
  };
}

// Series of a chart on one axis; evaluations stand at places of their own.
function dataOf(chart, got, evals, place) {
  const steps = got.series.total_step?.last ?? got.x;
  const lines = chart.keys.map((key) => ({ name: key, kind: chart.kind ?? "line", ...got.series[key] }));
  const named = new Map();
  if (chart.evals) {
    for (const each of evals) {
      if (each.environment === null && evals.some((other) => other.environment !== null)) continue;
      const name = `eval ${each.environment ?? ""} ${each.mode === "greedy" ? "greedy" : ""}`.replace(/ +/g, " ").trim();
      if (!named.has(name)) named.set(name, []);
      named.get(name).push({ ...each, at: place(each.total_step) });
    }
  }
  if (!named.size) return { x: got.x, steps, series: lines.map((line) => ({ ...line })) };
  const x = [...new Set([...got.x, ...[...named.values()].flat().map(({ at }) => at)])].filter((at) => at !== null).sort((a, b) => a - b);
  const index = new Map(x.map((at, number) => [at, number]));
  const spread = (from, values) => {
    const list = new Array(x.length).fill(null);
    from.forEach((at, number) => { if (at !== null) list[index.get(at)] = values[number]; });
    return list;
  };
  const points = [...named].slice(0, 6).map(([name, each]) => {
    const at = each.map((one) => one.at);
    return { name, kind: "points", last: spread(at, each.map((one) => one.success)), low: spread(at, each.map((one) => one.interval?.[0] ?? null)), high: spread(at, each.map((one) => one.interval?.[1] ?? null)) };
  });
  const stepAt = spread(got.x, steps);
  for (const one of [...named.values()].flat()) if (one.at !== null) stepAt[index.get(one.at)] = one.total_step;
  return {
    x,
    steps: stepAt,
    series: [...lines.map((line) => ({ ...line, last: spread(got.x, line.last), low: spread(got.x, line.low), high: spread(got.x, line.high) })), ...points],
  };
}
