// Curves by uPlot, each with a table and, given an address, a CSV; where uPlot is missing, the table alone.
import { h, svg } from "./dom.js";
import { dataTable } from "./table.js";
import { numberOf, textOf } from "./text.js";

const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [1, 5], [12, 6]];
const MOST_ROWS = 1000;
const LETTERS = { guard: "G", roll_back: "R", resume: "↻", fault: "F", worker_replaced: "W", learner_restarted: "L", end: "E", note: "n" };

// The element has `update({x, series, borders, flags})`.
export function lineChart(options) {
  const chart = new LineChart(options);
  chart.element.update = (data) => chart.update(data);
  return chart.element;
}

export class LineChart {
  constructor({ title, x, xLabel, series, borders = [], flags = [], onPick = null, csv = null, note = null, height = 200, carries = false }) {
    Object.assign(this, { title, x, xLabel, series, borders, flags, onPick, height, carries });
    this.at = Infinity;
    this.plot = null;
    this.isSeen = true;
    this.isBehind = false;
    this.canvas = h("div", { class: "plot" });
    this.legend = h("div", { class: "legend", "aria-hidden": "true" });
    this.readout = h("p", { class: "readout", "aria-hidden": "true" });
    this.rows = h("div", {});
    this.details = h("details", { ontoggle: () => this.fillTable() }, h("summary", {}, `Table of ${title}`), this.rows);
    this.element = h(
      "figure",
      { class: "chart" },
      h("figcaption", {}, h("h3", {}, title), this.legend),
      note ? h("p", { class: "muted" }, note) : null,
      this.canvas,
      this.readout,
      h("div", { class: "below" }, this.details, csv ? h("a", { href: csv, download: true, "aria-label": `CSV of ${title}` }, "CSV") : null),
    );
    if (globalThis.uPlot) this.start();
    else this.element.insertBefore(h("p", { class: "muted" }, "Charts need uPlot, which is not installed here; the table has the same values."), this.canvas);
    this.draw();
    if (!globalThis.uPlot) this.details.open = true;
  }

  start() {
    const { canvas } = this;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "slider");
    // until there is room to draw
    for (const name of ["aria-valuemin", "aria-valuemax", "aria-valuenow"]) canvas.setAttribute(name, "0");
    canvas.setAttribute("aria-label", textOf(`${this.title} by ${this.xLabel}`));
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("focus", () => this.show(Math.min(this.at, this.x.length - 1)));
    new ResizeObserver(() => this.resize()).observe(canvas);
    new IntersectionObserver((found) => this.see(found[found.length - 1].isIntersecting)).observe(this.element);
    const again = () => this.canvas.isConnected && this.draw();
    document.addEventListener("themechange", again);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  }

  update(data) {
    Object.assign(this, data);
    if (this.isSeen) this.renew();
    else this.isBehind = true;
    this.fillTable();
  }

  // What nobody sees is drawn when somebody does.
  see(isSeen) {
    this.isSeen = isSeen;
    if (isSeen && this.isBehind) this.renew();
  }

  // Of the same series only the values are new, which is far less work than a new plot.
  renew() {
    this.isBehind = false;
    if (!this.plot || this.form !== this.formOf()) this.draw();
    else {
      this.plot.setData(this.layOut().data);
      this.showRange();
    }
  }

  formOf() {
    return JSON.stringify(this.series.map((each) => [each.name, each.kind, hasExtremes(each), isSingle(each)]));
  }

  draw() {
    this.legend.replaceChildren(...this.series.map((each, at) => legendOf(each, at)));
    this.plot?.destroy();
    this.plot = null;
    const isEmpty = !this.series.some(({ last }) => (last ?? []).some((value) => value !== null));
    this.canvas.hidden = !globalThis.uPlot || isEmpty;
    if (isEmpty) this.readout.textContent = "not recorded";
    else if (globalThis.uPlot && this.canvas.clientWidth) this.makePlot();
  }

  makePlot() {
    const { data, drawn, bands } = this.layOut();
    this.form = this.formOf();
    let pressed = null;
    this.plot = new globalThis.uPlot(
      {
        width: this.canvas.clientWidth,
        height: this.height,
        scales: { x: { time: false }, y: { range: rangeOf } },
        legend: { show: false },
        cursor: { y: false, drag: { x: true, y: false } },
        axes: [this.axis(28), this.axis(62)],
        series: [{}, ...drawn],
        bands,
        hooks: { draw: [(plot) => this.drawMarks(plot)], setCursor: [(plot) => this.tell(plot.cursor.idx)] },
      },
      data,
      this.canvas,
    );
    this.plot.over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
    this.plot.over.addEventListener("click", (event) => {
      if (pressed !== null && Math.abs(event.clientX - pressed) < 4) this.pick(this.plot.cursor.idx);
    });
    this.canvas.setAttribute("aria-valuemin", "0");
    this.showRange();
  }

  showRange() {
    this.at = Math.min(this.at, this.x.length - 1);
    this.canvas.setAttribute("aria-valuemax", String(this.x.length - 1));
    this.tell(this.at);
  }

  // Each series is three of uPlot's where its buckets have extremes: its last values, and a band from low to high.
  layOut() {
    const [data, drawn, bands] = [[this.x], [], []];
    this.series.forEach((each, at) => {
      const color = this.colorOf(at);
      const points = each.kind === "points";
      const paths = points ? () => null : each.kind === "steps" ? globalThis.uPlot.paths.stepped({ align: 1 }) : undefined;
      data.push(each.last);
      drawn.push({
        stroke: color, width: 1.5, dash: DASHES[at % DASHES.length], spanGaps: true, paths,
        points: { show: points || isSingle(each), size: 7, fill: at % 2 ? this.paper() : color, stroke: color },
      });
      if (points || !hasExtremes(each)) return;
      data.push(each.low, each.high);
      const edge = { stroke: "transparent", spanGaps: true, points: { show: false } };
      drawn.push(edge, edge);
      bands.push({ series: [drawn.length, drawn.length - 1], fill: color.replace("rgb(", "rgba(").replace(")", ", 0.18)") });
    });
    return { data, drawn, bands };
  }

  axis(size) {
    const line = getComputedStyle(this.element).borderTopColor;
    return { size, stroke: getComputedStyle(this.readout).color, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif", values: (_, splits) => splits.map((each) => numberOf(each)) };
  }

  colorOf(at) {
    return getComputedStyle(this.legend.children[at].firstChild).color;
  }

  paper() {
    return getComputedStyle(this.element).backgroundColor;
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot;
    const ratio = globalThis.devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.strokeStyle = ctx.fillStyle = getComputedStyle(this.readout).color;
    ctx.lineWidth = ratio;
    ctx.textBaseline = "top";
    for (const { at, name } of this.borders) this.drawUpright(plot, at, textOf(name), [4, 4], 2 * ratio, ratio);
    for (const { at, kind } of this.flags) this.drawUpright(plot, at, LETTERS[kind] ?? "!", [1, 3], 16 * ratio, ratio);
    this.series.forEach((each, at) => each.kind === "points" && this.drawWhiskers(plot, each, this.colorOf(at), ratio));
    ctx.restore();
  }

  drawUpright(plot, at, text, dash, below, ratio) {
    const { ctx, bbox } = plot;
    const x = Math.round(plot.valToPos(at, "x", true));
    ctx.setLineDash(dash.map((each) => each * ratio));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const wide = ctx.measureText(text).width;
    ctx.fillText(text, x + wide + 6 * ratio > bbox.left + bbox.width ? x - wide - 3 * ratio : x + 3 * ratio, bbox.top + below);
  }

  drawWhiskers(plot, each, color, ratio) {
    const { ctx } = plot;
    ctx.strokeStyle = color;
    ctx.setLineDash([]);
    this.x.forEach((place, at) => {
      if (each.last[at] === null || !each.low || each.low[at] === null) return;
      const x = Math.round(plot.valToPos(place, "x", true));
      const [top, bottom] = [each.high[at], each.low[at]].map((value) => plot.valToPos(value, "y", true));
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, bottom);
      for (const y of [top, bottom]) {
        ctx.moveTo(x - 3 * ratio, y);
        ctx.lineTo(x + 3 * ratio, y);
      }
      ctx.stroke();
    });
  }

  onKey(event) {
    const last = this.x.length - 1;
    const to = { ArrowLeft: this.at - 1, ArrowRight: this.at + 1, PageUp: this.at - 10, PageDown: this.at + 10, Home: 0, End: last }[event.key];
    if (to !== undefined) this.show(Math.max(0, Math.min(last, to)));
    else if (event.key === "Enter") this.pick(this.at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  show(at) {
    if (!this.plot) return;
    this.plot.setCursor({ left: this.plot.valToPos(this.x[at], "x"), top: 10 });
    this.tell(at);
  }

  tell(at) {
    if (at === null || at === undefined) return;
    this.at = at;
    const known = this.series.map((each) => [each, this.placeOf(each, at)]).filter(([, place]) => place >= 0).map(([each, place]) => valueText(each, place));
    const text = `${this.xLabel} ${numberOf(this.x[at])}: ${known.join(", ") || "not recorded"}`;
    this.readout.textContent = textOf(text) + (this.onPick ? " (click or Enter: episodes)" : "");
    this.canvas.setAttribute("aria-valuenow", String(at));
    this.canvas.setAttribute("aria-valuetext", textOf(text));
  }

  // Where the value stands that a series has at a place: there, or, where series have places of their own, before it.
  placeOf(each, at) {
    const isKnown = (place) => each.last[place] !== null && each.last[place] !== undefined;
    let place = at;
    while (this.carries && place >= 0 && !isKnown(place)) place -= 1;
    return place >= 0 && isKnown(place) ? place : -1;
  }

  pick(at) {
    if (this.onPick && at !== null && at !== undefined) this.onPick(at);
  }

  resize() {
    if (!this.plot) this.draw();
    else if (this.canvas.clientWidth) this.plot.setSize({ width: this.canvas.clientWidth, height: this.height });
  }

  fillTable() {
    if (!this.details.open) return;
    const shown = this.x.map((_, at) => at).filter((at) => this.series.some((each) => each.last[at] !== null)).slice(-MOST_ROWS);
    const place = (at) => (this.onPick ? h("button", { type: "button", class: "link", onclick: () => this.pick(at) }, numberOf(this.x[at])) : numberOf(this.x[at]));
    const columns = [
      { title: this.xLabel, numeric: true, cell: place },
      ...this.series.flatMap((each) => [
        { title: each.name, numeric: true, cell: (at) => numberOf(each.last[at]) },
        ...(hasExtremes(each) ? ["low", "high"].map((edge) => ({ title: `${each.name}, ${edge}`, numeric: true, cell: (at) => numberOf(each[edge][at]) })) : []),
      ]),
    ];
    this.rows.replaceChildren(dataTable({ caption: this.title, hideCaption: true, columns, rows: shown, empty: "not recorded" }));
  }
}

function legendOf(each, at) {
  const line = each.kind === "points"
    ? svg("circle", { cx: 12, cy: 6, r: 4, fill: at % 2 ? "none" : "currentColor", stroke: "currentColor", "stroke-width": 1.5 })
    : svg("line", { x1: 0, x2: 24, y1: 6, y2: 6, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": DASHES[at % DASHES.length].join(" ") });
  return h("span", { class: "key" }, svg("svg", { class: `c${at % 6}`, width: 24, height: 12 }, line), h("span", {}, each.name));
}

function isSingle(each) {
  return each.last.filter((value) => value !== null).length < 2;
}

function hasExtremes(each) {
  return Boolean(each.low) && each.last.some((value, at) => each.low[at] !== value || each.high[at] !== value);
}

function valueText(each, at) {
  const value = `${each.name} ${numberOf(each.last[at])}`;
  const differs = each.low && each.low[at] !== null && each.low[at] !== each.high[at];
  return differs ? `${value} [${numberOf(each.low[at])}, ${numberOf(each.high[at])}]` : value;
}

function rangeOf(_, low, high) {
  if (low === null || high === null) return [0, 1];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 0.5;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}
