// The tokens of a reply, shaded by what is known of each: by colour, and by the line below, which tells as much.
import { h } from "./dom.js";
import { numberOf, textOf, yesOrNo, orMissing } from "./text.js";

export const colorings = {
  none: { title: "none", legend: [] },
  logprob: {
    title: "log-prob",
    legend: [["s0", "sure: above -0.1"], ["s1", "to -0.5"], ["s2", "to -1"], ["s3", "to -2.5"], ["s4", "surprising: below"]],
    levelOf: (value) => `s${countBelow([0.1, 0.5, 1, 2.5], -value)}`,
  },
  advantage: {
    title: "advantage",
    legend: [["n3", "strongly against"], ["n1", "against"], ["z", "0"], ["p1", "for"], ["p3", "strongly for"]],
    levelOf: (value) => signed(value, [0, 0.25, 1]),
  },
  ratio: {
    title: "ratio",
    legend: [["n3", "below 0.67"], ["n1", "below 0.99"], ["z", "about 1"], ["p1", "above 1.01"], ["p3", "above 1.5"]],
    levelOf: (value) => signed(Math.log(value), [0.01, 0.18, 0.4]),
  },
  mask: {
    title: "mask",
    legend: [["in", "trained on"], ["out", "left out"]],
    levelOf: (value) => (value ? "in" : "out"),
    column: "trained",
  },
};

// `tokens` are columns; `onToken(facts)` is called for the one under the pointer or with the focus.
export function tokenList(tokens, label, onToken) {
  const items = tokens.text.map((text, at) =>
    h("span", { role: "option", class: "token", tabIndex: at ? -1 : 0, "aria-selected": "false", "aria-label": nameOf(text, at) }, shownText(text)),
  );
  const box = h("div", { role: "listbox", class: "tokens text", "aria-label": label, "aria-orientation": "horizontal" }, items);
  box.dir = "ltr";
  const tell = (event) => {
    const at = items.indexOf(event.target);
    if (at >= 0) onToken(factsOf(tokens, at));
  };
  box.addEventListener("pointerover", tell);
  box.addEventListener("focusin", (event) => {
    for (const item of box.querySelectorAll('[aria-selected="true"]')) item.setAttribute("aria-selected", "false");
    if (event.target !== box) event.target.setAttribute("aria-selected", "true");
    tell(event);
  });
  box.addEventListener("keydown", (event) => moveFocus(event, items));
  return box;
}

export function shadeTokens(box, tokens, coloring) {
  const { levelOf, column = coloring } = colorings[coloring];
  const values = tokens[column] ?? null;
  [...box.children].forEach((item, at) => {
    const value = values ? values[at] : null;
    item.className = !levelOf ? "token" : value === null ? "token unknown" : `token ${levelOf(value)}`;
  });
}

export function colorLegend(coloring) {
  const { legend } = colorings[coloring];
  return h("span", { class: "tokens" }, legend.map(([level, text]) => [h("span", { class: `token ${level}` }, text), " "]), legend.length ? h("span", { class: "token unknown" }, "not recorded") : null);
}

function factsOf(tokens, at) {
  const of = (name) => (tokens[name] ? tokens[name][at] : null);
  const logprob = of("logprob");
  return [
    ["token", `${at + 1} of ${tokens.text.length}`],
    ["id", of("id")],
    ["text", JSON.stringify(tokens.text[at])],
    ["log-prob", logprob === null ? null : `${numberOf(logprob)} (${(100 * Math.exp(logprob)).toPrecision(3)} %)`],
    ["learner", numberOrNull(of("learner"))],
    ["reference", numberOrNull(of("reference"))],
    ["ratio", numberOrNull(of("ratio"))],
    ["advantage", numberOrNull(of("advantage"))],
    ["weights version", of("version")],
    ["trained on", yesOrNo(of("trained"))],
  ].map(([name, value]) => [name, orMissing(value)]);
}

function numberOrNull(value) {
  return value === null ? null : numberOf(value);
}

function moveFocus(event, items) {
  const at = items.indexOf(document.activeElement);
  const to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: items.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  const next = items[Math.max(0, Math.min(items.length - 1, to))];
  items[at].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function nameOf(text, at) {
  return /\S/.test(text) ? textOf(text) : `token ${at + 1}: ${text ? JSON.stringify(text).slice(1, -1) || "space" : "part of a character"}`;
}

function shownText(text) {
  return text === "" ? "·" : text.replace(/\n/g, "↵\n");
}

function countBelow(edges, value) {
  return edges.filter((edge) => value > edge).length;
}

function signed(value, edges) {
  const level = countBelow(edges, Math.abs(value));
  return level ? `${value < 0 ? "n" : "p"}${level}` : "z";
}
