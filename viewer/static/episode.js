// One episode from its JSON: what the agent saw, what it replied token by token, what came of it; turn by turn, or all.
import { h } from "./dom.js";
import { addKeys } from "./keys.js";
import { dataTable } from "./table.js";
import { longText, numberOf, orMissing, secondsOf, yesOrNo } from "./text.js";
import { colorings, colorLegend, shadeTokens, tokenList } from "./tokens.js";

const PLAY_MS = 1200;

export function renderEpisode(root, answer, options = {}) {
  const view = new EpisodeView(answer, options);
  root.replaceChildren(view.element);
  return { goTo: (turn) => view.goTo(turn), setColor: (color) => view.setColor(color) };
}

export class EpisodeView {
  constructor(answer, options) {
    this.answer = answer;
    this.options = options;
    this.turns = answer.turns;
    this.turn = Math.max(1, Math.min(this.turns.length, options.turn || 1));
    this.color = colorings[options.color] ? options.color : "logprob";
    this.all = Boolean(options.all);
    this.timer = null;
    this.panel = h("div", { class: "turns" });
    this.details = h("dl", { class: "facts token-facts", "aria-live": "polite", "aria-label": "Token" });
    this.legend = h("div", { class: "shades" });
    this.slider = h("input", { type: "range", min: 1, max: Math.max(1, this.turns.length), "aria-label": "Turn", oninput: (event) => this.goTo(Number(event.target.value)) });
    this.place = h("output", { class: "place" });
    this.playing = h("button", { type: "button", onclick: () => this.play() }, "Play");
    this.whole = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.showAll(!this.all) }, "All turns");
    this.outline = this.makeOutline();
    this.element = h(
      "div",
      { class: "episode" },
      this.makeFacts(),
      this.makeGroup(),
      h("section", { "aria-label": "Turns" }, this.makeStepper(), this.makeShades(), h("div", { class: "reading" }, this.outline, h("div", {}, this.panel, this.makeTokenFacts()))),
    );
    this.listen();
    this.draw();
  }

  // --- what stands around the turns

  makeFacts() {
    const { episode, record } = this.answer;
    const training = record.training ?? {};
    const versions = this.versions();
    const task = this.options.hrefOfTask
      ? h("a", { href: this.options.hrefOfTask(episode.environment, episode.task) }, episode.task)
      : episode.task;
    const facts = [
      ["task", task],
      ["environment", episode.environment],
      ["seed", String(episode.seed)],
      ["step", numberOf(episode.step)],
      ["stage", orMissing(episode.stage)],
      ["played for", [episode.purpose, episode.mode].filter(Boolean).join(", ")],
      ["ended by", episode.ending],
      ["success", yesOrNo(episode.success)],
      ["score", numberOf(episode.score)],
      ["reward", episode.reward === null ? orMissing(null) : numberOf(episode.reward)],
      ["advantage", episode.advantage === null ? orMissing(null) : numberOf(episode.advantage)],
      ["trained on", yesOrNo(episode.kept) + (training.reason ? ` (${training.reason})` : "")],
      ["weights version", orMissing(versions)],
      ...(record.prompt ? [["prompt version", record.prompt]] : []),
      ["tokens", `${numberOf(episode.sampled_tokens)} sampled of ${numberOf(episode.total_tokens)}`],
      ["seconds", secondsOf(episode.seconds)],
      ...(record.fault ? [["fault", record.fault]] : []),
      ...(record.judge ? [["judge", [].concat(record.judge).join(", ")]] : []),
    ];
    return factList(facts);
  }

  versions() {
    const known = new Set(this.turns.flatMap((turn) => turn.tokens?.version ?? []).filter((each) => each !== null));
    for (const segment of this.answer.record.segments ?? []) {
      if (!known.size) for (const each of segment.versions ?? []) if (typeof each === "number" && each >= 0) known.add(each);
    }
    const sorted = [...known].sort((a, b) => a - b);
    return sorted.length > 1 ? `${sorted[0]} to ${sorted[sorted.length - 1]}` : sorted.length ? String(sorted[0]) : null;
  }

  makeGroup() {
    const { group, episode } = this.answer;
    if (group.length < 2) return null;
    const link = this.options.hrefOfEpisode;
    const name = (each) => (each.id === episode.id ? h("strong", {}, `${each.index}, this one`) : link ? h("a", { href: link(each.id) }, String(each.index)) : String(each.index));
    const columns = [
      { title: "number", cell: name },
      { title: "success", cell: (each) => yesOrNo(each.success) },
      { title: "reward", numeric: true, cell: (each) => numberOf(each.reward) },
      { title: "advantage", numeric: true, cell: (each) => numberOf(each.advantage) },
      { title: "ended by", cell: (each) => each.ending },
      { title: "turns", numeric: true, cell: (each) => numberOf(each.turns) },
      { title: "first line", cell: (each) => h("span", { class: "line" }, each.first_line) },
    ];
    return h(
      "details",
      {},
      h("summary", {}, `Its group: ${group.length} episodes, ${group.filter((each) => each.success).length} won`),
      dataTable({ caption: "Episodes of the group", hideCaption: true, columns, rows: group }),
    );
  }

  makeStepper() {
    const button = (text, name, step) => h("button", { type: "button", "aria-label": name, onclick: () => this.goTo(this.turn + step) }, text);
    return h("div", { class: "stepper" }, button("←", "Previous turn", -1), this.slider, button("→", "Next turn", 1), this.place, this.playing, this.whole);
  }

  makeShades() {
    const choices = Object.entries(colorings).map(([name, { title }]) =>
      h("label", {}, h("input", { type: "radio", name: "shade", value: name, checked: name === this.color, onchange: () => this.setColor(name) }), ` ${title}`),
    );
    this.choices = choices;
    return h("fieldset", { class: "shading" }, h("legend", {}, "Shade tokens by"), choices, this.legend);
  }

  makeTokenFacts() {
    return h("aside", { class: "token-box", "aria-label": "Token under the pointer or with the focus" }, this.details);
  }

  makeOutline() {
    const items = this.turns.map((turn) =>
      h("li", {}, h("button", { type: "button", class: "turn-link", onclick: () => this.goTo(turn.number) },
        h("span", { class: "turn-number" }, String(turn.number)), h("span", { class: "line" }, turn.action ?? (turn.purpose === "act" ? "no action" : turn.purpose)), turn.reward ? h("span", { class: "numeric" }, numberOf(turn.reward)) : null)),
    );
    return h("nav", { class: "outline", "aria-label": "Turns" }, h("ol", {}, items));
  }

  // --- turns

  draw() {
    this.sight = [];
    const shown = this.all ? this.turns : this.turns.slice(this.turn - 1, this.turn);
    this.panel.replaceChildren(...shown.map((turn) => this.makeTurn(turn)));
    if (!this.turns.length) this.panel.replaceChildren(this.makeSaw(null), h("p", { class: "muted" }, "The agent had no turn."));
    this.details.replaceChildren(h("dt", {}, "token"), h("dd", { class: "muted" }, this.sight.length ? "point at one, or move with Tab and the arrows" : "no tokens are known: its tokenizer is not in the run folder, or not installed"));
    this.shade();
    this.mark();
  }

  makeTurn(turn) {
    const reply = h("div", { class: "reply" }, h("h3", {}, turn.purpose === "act" ? "Reply" : `Reply (${turn.purpose})`), this.makeReply(turn), this.makeActs(turn));
    const result = h("div", { class: "answer" }, h("h3", {}, "Answer"), longText(turn.observation || "(empty)"), this.makePicture(turn.picture, `after turn ${turn.number}`));
    const heading = h("h2", { id: `turn-${turn.number}` }, `Turn ${turn.number}`);
    return h("section", { class: "turn", "aria-labelledby": `turn-${turn.number}` }, heading, h("div", { class: "columns" }, this.all && turn.number > 1 ? null : this.makeSaw(turn), reply, result));
  }

  makeSaw(turn) {
    const before = turn && turn.number > 1 ? this.turns[turn.number - 2] : null;
    const box = h("div", { class: "saw" }, h("h3", {}, "Observation"));
    if (before) box.append(longText(before.observation || "(empty)"), this.makePicture(before.picture, `before turn ${turn.number}`) ?? "");
    else {
      for (const { role, content } of this.answer.record.opening ?? []) {
        const text = longText(content);
        box.append(role === "system" ? h("details", {}, h("summary", {}, "system"), text) : text);
      }
      box.append(this.makePicture(this.answer.opening_picture, "before turn 1") ?? "");
    }
    return box;
  }

  makePicture(name, when) {
    if (!name || !this.options.pictureUrl) return null;
    return h("img", { class: "picture", src: this.options.pictureUrl(name), alt: `What the environment showed ${when}`, loading: "lazy" });
  }

  makeReply(turn) {
    if (!turn.tokens?.text.length) return longText(turn.reply || "(empty)");
    const box = tokenList(turn.tokens, `Tokens of turn ${turn.number}`, (facts) => this.tell(facts));
    this.sight.push([box, turn.tokens]);
    return box;
  }

  makeActs(turn) {
    const calls = (turn.tool_calls ?? []).map((call) => ["tool call", longText(JSON.stringify(call, null, 1))]);
    const seconds = turn.seconds ?? {};
    return factList([
      ["action", turn.action === null ? "none was understood" : longText(turn.action)],
      ["reward", numberOf(turn.reward)],
      ["state", orMissing(turn.state)],
      ["seconds", turn.seconds ? `${secondsOf(seconds.sampling)} sampling, ${secondsOf(seconds.environment)} environment` : orMissing(null)],
      ["trained on", yesOrNo(turn.trained)],
      ...(this.answer.record.segments?.length > 1 ? [["segment", String(turn.segment)]] : []),
      ...calls,
    ]);
  }

  shade() {
    this.legend.replaceChildren(colorLegend(this.color));
    for (const [box, tokens] of this.sight) shadeTokens(box, tokens, this.color);
  }

  tell(facts) {
    this.details.replaceChildren(...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]));
  }

  mark() {
    this.slider.value = String(this.turn);
    this.slider.disabled = this.turns.length < 2;
    this.place.textContent = `turn ${this.turns.length ? this.turn : 0} of ${this.turns.length}`;
    this.whole.setAttribute("aria-pressed", String(this.all));
    this.outline.querySelectorAll("button").forEach((each, at) => {
      if (at === this.turn - 1) each.setAttribute("aria-current", "step");
      else each.removeAttribute("aria-current");
    });
    const current = this.outline.querySelector("[aria-current]");
    // only the list scrolls, never the page
    if (current) this.outline.scrollTop = current.offsetTop - this.outline.clientHeight / 2;
  }

  // --- moves

  goTo(turn) {
    const to = Math.max(1, Math.min(this.turns.length, turn));
    if (to === this.turn) return;
    this.turn = to;
    if (this.all) this.mark();
    else this.draw();
    if (this.all) this.panel.children[to - 1]?.scrollIntoView({ block: "start" });
    this.changed();
  }

  setColor(color) {
    if (!colorings[color]) return;
    this.color = color;
    for (const choice of this.choices) choice.firstChild.checked = choice.firstChild.value === color;
    this.shade();
    this.changed();
  }

  showAll(all) {
    this.all = all;
    this.draw();
    if (all) this.panel.children[this.turn - 1]?.scrollIntoView({ block: "start" });
    this.changed();
  }

  play() {
    if (this.timer) this.stop();
    else {
      if (this.turn === this.turns.length) this.goTo(1);
      this.timer = setInterval(() => (this.turn < this.turns.length ? this.goTo(this.turn + 1) : this.stop()), PLAY_MS);
      this.playing.textContent = "Pause";
    }
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.playing.textContent = "Play";
  }

  changed() {
    this.options.onChange?.({ turn: this.turn, color: this.color, all: this.all });
  }

  listen() {
    const { signal } = this.options;
    signal?.addEventListener("abort", () => this.stop());
    const names = Object.keys(colorings);
    addKeys(signal, [
      { key: "ArrowLeft", text: "previous turn; in a reply, the token before", run: () => this.goTo(this.turn - 1) },
      { key: "ArrowRight", text: "next turn; in a reply, the next token", run: () => this.goTo(this.turn + 1) },
      { key: "Home", text: "first turn", run: () => this.goTo(1) },
      { key: "End", text: "last turn", run: () => this.goTo(this.turns.length) },
      { key: " ", text: "play, or pause", run: () => this.play() },
      { key: "a", text: "all turns, or one", run: () => this.showAll(!this.all) },
      { key: "s", text: "shade by the next quantity", run: () => this.setColor(names[(names.indexOf(this.color) + 1) % names.length]) },
    ]);
  }
}

export function factList(facts) {
  return h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
