"use strict";
// The page of a report. Everything that was recorded is shown as text: nothing here parses HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]/gu;

  const escaped = (value) =>
    String(value).replace(HIDDEN, (each) => "\\u" + each.codePointAt(0).toString(16).padStart(4, "0"));

  function h(tag, properties, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties || {})) element[name] = value;
    element.append(...children.flat().map((each) => (each instanceof Node ? each : escaped(each))));
    return element;
  }

  function s(tag, attributes, text) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = escaped(text);
    return element;
  }

  const number = (value, places = 4) => (value === null || value === undefined ? "not recorded" : String(+value.toPrecision(places)));
  const percent = (value) => (value === null ? "not recorded" : `${(100 * value).toFixed(1)} %`);
  const interval = (found) => (found ? `${percent(found[0])} to ${percent(found[1])}` : "not recorded");
  const date = (seconds) => {
    const time = new Date(1000 * (seconds ?? NaN));
    return Number.isNaN(time.getTime()) ? "not recorded" : time.toISOString().replace("T", " ").slice(0, 19) + " UTC";
  };

  function table(caption, titles, rows) {
    const head = h("tr", {}, titles.map((each) => h("th", { scope: "col" }, each)));
    const body = rows.map((row) => h("tr", {}, row.map((each) => h("td", {}, each))));
    const made = h("table", {}, h("caption", { className: "faint" }, caption), h("thead", {}, head), h("tbody", {}, body));
    return h("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption }, made);
  }

  // --- charts

  const WIDTH = 420, HEIGHT = 190, LEFT = 52, BOTTOM = 20, TOP = 8;

  function chart({ title, x, series, stages }) {
    const names = Object.keys(series);
    const values = names.flatMap((name) => [...series[name].low, ...series[name].high]).filter((each) => each !== null);
    const figure = h("figure", {}, h("figcaption", {}, title));
    if (!values.length) return figure;
    const [low, high] = widen(values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b)));
    const [first, last] = widen(x[0], x[x.length - 1]);
    const toX = (value) => LEFT + ((value - first) / (last - first)) * (WIDTH - LEFT - 8);
    const toY = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - BOTTOM - TOP);
    const label = `${title} by step: ${names.join(", ")}; the values are in the table below`;
    const drawing = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": escaped(label) });
    for (const value of [low, (low + high) / 2, high]) {
      drawing.append(s("line", { class: "axis", x1: LEFT, x2: WIDTH - 8, y1: toY(value), y2: toY(value) }));
      drawing.append(s("text", { x: LEFT - 5, y: toY(value) + 4, "text-anchor": "end" }, number(value, 3)));
    }
    for (const [value, anchor] of [[first, "start"], [last, "end"]])
      drawing.append(s("text", { x: toX(value), y: HEIGHT - 5, "text-anchor": anchor }, number(value, 7)));
    for (const stage of stages.slice(1)) {
      if (stage.from < first || stage.from > last) continue;
      const line = s("line", { class: "border", x1: toX(stage.from), x2: toX(stage.from), y1: TOP, y2: HEIGHT - BOTTOM });
      line.append(s("title", {}, `stage ${stage.name}`));
      drawing.append(line);
    }
    names.forEach((name, at) => draw(drawing, x, series[name], `k${at}`, toX, toY));
    figure.append(drawing, legend(names), values_of(title, x, series, names));
    return figure;
  }

  function widen(low, high) {
    if (low < high) return [low, high];
    const by = Math.abs(low) / 10 || 1;
    return [low - by, high + by];
  }

  function draw(drawing, x, { low, high, last }, kind, toX, toY) {
    const known = x.map((_, at) => at).filter((at) => last[at] !== null);
    if (known.some((at) => low[at] < high[at])) {
      const there = known.map((at) => `${toX(x[at])} ${toY(high[at])}`);
      const back = [...known].reverse().map((at) => `${toX(x[at])} ${toY(low[at])}`);
      drawing.append(s("path", { class: `band ${kind}`, d: `M${[...there, ...back].join("L")}Z` }));
    }
    if (known.length < 40)
      for (const at of known) drawing.append(s("circle", { class: kind, fill: "none", cx: toX(x[at]), cy: toY(last[at]), r: 2 }));
    if (known.length) drawing.append(s("path", { class: kind, d: "M" + known.map((at) => `${toX(x[at])} ${toY(last[at])}`).join("L") }));
  }

  function legend(names) {
    return h("ul", { className: "legend" }, names.map((name, at) => {
      const sample = s("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" });
      sample.append(s("line", { class: `k${at}`, x1: 0, x2: 26, y1: 4, y2: 4 }));
      return h("li", {}, sample, name);
    }));
  }

  function values_of(title, x, series, names) {
    return lazy("values", () => table(`${title}: last value of each point`, ["step", ...names],
      x.map((step, at) => [number(step, 9), ...names.map((name) => number(series[name].last[at], 5))])));
  }

  function lazy(summary, make) {
    const details = h("details", {}, h("summary", {}, summary));
    details.addEventListener("toggle", () => details.open && details.childElementCount === 1 && details.append(make()));
    return details;
  }

  // --- evaluations

  function evaluations(run) {
    if (!run.evals.length) return h("p", { className: "faint" }, "no evaluation is recorded");
    const of = (each) => (each.environment === null ? "all" : each.environment) + (each.mode === "greedy" ? ", greedy" : "");
    const names = [...new Set(run.evals.filter((each) => each.interval).map(of))].slice(0, 6);
    const steps = [...new Set(run.evals.map((each) => each.total_step))].filter((each) => each !== null).sort((a, b) => a - b);
    const series = Object.fromEntries(names.map((name) => {
      const at = new Map(run.evals.filter((each) => each.interval && of(each) === name).map((each) => [each.total_step, each]));
      const take = (get) => steps.map((step) => (at.has(step) ? get(at.get(step)) : null));
      return [name, { last: take((each) => each.success), low: take((each) => each.interval[0]), high: take((each) => each.interval[1]) }];
    }));
    const rows = run.evals.map((each) => [number(each.total_step, 9), of(each), percent(each.success), interval(each.interval), each.episodes ?? "not recorded"]);
    const drawn = names.length && steps.length ? [chart({ title: "evaluations with intervals", x: steps, series, stages: run.stages })] : [];
    return h("div", {}, ...drawn, table("Evaluations", ["step", "environment", "success", "interval of 95 %", "episodes"], rows));
  }

  // --- episodes

  function episodes(run) {
    const list = h("div", {});
    const words = h("input", { type: "search" });
    const outcome = h("select", {}, ["all", "failed", "succeeded"].map((each) => h("option", { value: each }, each)));
    const count = h("p", { className: "faint", role: "status" });
    const made = run.episodes.map((each) => [each, JSON.stringify(each).toLowerCase(), episode(each)]);
    const filter = () => {
      const wanted = JSON.stringify(words.value.toLowerCase()).slice(1, -1);
      const shown = made.filter(([each, text]) => (outcome.value === "all" || each.success === (outcome.value === "succeeded")) && text.includes(wanted));
      list.replaceChildren(...shown.map(([, , element]) => element));
      count.textContent = `${shown.length} of ${made.length} episodes`;
    };
    words.addEventListener("input", filter);
    outcome.addEventListener("change", filter);
    filter();
    return h("div", {}, h("label", {}, "with the words ", words), h("label", {}, "that ", outcome), count, list);
  }

  function episode(each) {
    const mark = h("span", { className: each.success ? "good" : "bad" }, each.success ? "✓ success" : "✗ failed");
    const kind = each.mode ? `${each.purpose} ${each.mode}` : each.purpose;
    const length = `${each.turns} turn${each.turns === 1 ? "" : "s"}, ${each.ending}`;
    const told = [`step ${each.step}`, kind, each.environment, each.task, `score ${number(each.score)}`, length, ""].join(" · ");
    const element = lazy("", () => turns(each));
    element.firstChild.append(escaped(told), mark, h("span", { className: "faint" }, ` · ${each.first_line}`));
    return element;
  }

  function turns(each) {
    const about = [["id", each.id], ["seed", each.seed], ["stage", each.stage], ["reward", number(each.reward)], ["advantage", number(each.advantage)], ["sampled tokens", each.sampled_tokens]];
    const parts = [h("p", { className: "faint" }, about.map(([name, value]) => `${name} ${value}`).join("; "))];
    for (const { role, text } of each.opening) parts.push(h("h4", {}, role), h("pre", {}, text));
    each.played.forEach((turn, at) => {
      const did = turn.purpose !== "act" ? turn.purpose : turn.action === null ? "no action" : `action: ${turn.action}`;
      parts.push(h("h4", {}, `turn ${at + 1}/${each.played.length}; ${did}; reward ${number(turn.reward)}`), h("pre", {}, turn.reply));
      if (turn.observation) parts.push(h("pre", {}, turn.observation));
    });
    return h("div", {}, parts);
  }

  // --- the page

  function section(run, at) {
    const charts = run.charts.map((each) => chart({ ...each, stages: run.stages }));
    const stages = run.stages.map((each) => `${each.name} (${each.from} to ${each.to})`).join(", ") || "not recorded";
    return h("section", { id: `run-${at}` },
      h("h2", {}, run.name),
      h("p", {}, `stages: ${stages}`),
      h("h3", {}, "Curves"), charts.length ? h("div", { className: "charts" }, charts) : h("p", { className: "faint" }, "no metrics are recorded"),
      h("h3", {}, "Evaluations"), evaluations(run),
      h("h3", {}, "Events"), run.events.length
        ? table("Events", ["time", "step", "kind", "text"], run.events.map((each) => [date(each.time), number(each.total_step, 9), each.kind, each.text]))
        : h("p", { className: "faint" }, "no events are recorded"),
      h("h3", {}, "Recipe"), run.recipe ? lazy("recipe.yaml", () => h("pre", {}, run.recipe)) : h("p", { className: "faint" }, "not recorded"),
      h("h3", {}, "Episodes"), episodes(run));
  }

  const rows = data.runs.map((run, at) => [
    h("a", { href: `#run-${at}` }, run.name), run.stage ?? "not recorded", number(run.total_step, 9), percent(run.success), interval(run.interval), run.ended ?? "not recorded",
  ]);
  document.querySelector("main").append(
    h("h1", {}, "Report"),
    table("Runs", ["run", "stage", "step", "success", "interval of 95 %", "ended"], rows),
    h("p", {}, `Left out: ${data.left_out.join("; ")}.`),
    ...data.runs.map(section));
})();
