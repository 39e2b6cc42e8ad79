// Episodes side by side, turn by turn; the first turn in which one differs from the first of them is marked.
import { getJson } from "../api.js";
import { h } from "../dom.js";
import { addKeys } from "../keys.js";
import { hrefOf } from "../router.js";
import { longText, numberOf, yesOrNo } from "../text.js";

export async function showSideBySide({ root, parameters, query, signal, title }) {
  const { run } = parameters;
  const { episodes } = await getJson(["runs", run, "turns"], query.getAll("id").map((id) => ["id", id]), signal);
  const [{ episode: first }] = episodes;
  title(`${episodes.length} episodes of ${first.task}`);
  const differing = episodes.map((each) => each.differs).filter((each) => each !== null);
  const at = differing.length ? Math.min(...differing) : null;
  root.replaceChildren(
    h("h1", {}, `${first.environment} / ${first.task}`),
    h("p", {}, at === null ? "They are the same in every turn." : [`They first differ in `, h("a", { href: location.hash, onclick: goTo }, `turn ${at}`), ", compared with the first of them."]),
    sideBySideTable(run, episodes),
  );
  addKeys(signal, [{ key: "d", text: "to the first turn that differs", run: goTo }]);

  function goTo(event) {
    event?.preventDefault();
    const row = root.querySelector("tr.differs");
    row?.scrollIntoView({ block: "center" });
    row?.querySelector("th").focus({ preventScroll: true });
  }
}

export function sideBySideTable(run, episodes) {
  const number = Math.max(0, ...episodes.map((each) => each.turns.length));
  const first = Math.min(...episodes.map((each) => each.differs ?? Infinity));
  const rows = [];
  const opening = episodes.map((each) => each.opening);
  rows.push(h("tr", {}, h("th", { scope: "row" }, "opening"), opening.map((text) => h("td", {}, longText(text)))));
  for (let turn = 1; turn <= number; turn += 1) {
    const heading = h("th", { scope: "row", tabIndex: turn === first ? -1 : null }, `turn ${turn}`, turn === first ? h("span", { class: "mark" }, " first difference") : null);
    rows.push(h("tr", { class: turn === first ? "differs" : null }, heading, episodes.map((each) => cellOfTurn(each, turn))));
  }
  const heads = episodes.map(({ episode }) =>
    h("th", { scope: "col" }, h("a", { href: hrefOf(["runs", run, "episodes", episode.id]) }, episode.id), h("div", { class: "plain" }, `step ${numberOf(episode.step)}, success ${yesOrNo(episode.success)}, reward ${numberOf(episode.reward)}, advantage ${numberOf(episode.advantage)}`)));
  const table = h("table", { class: "data side" }, h("caption", { class: "unseen" }, "Turns side by side"), h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Turn"), heads)), h("tbody", {}, rows));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Turns side by side" }, table);
}

function cellOfTurn(each, turn) {
  const said = each.turns[turn - 1];
  if (!said) return h("td", { class: "muted" }, "–");
  const differs = each.differs === turn;
  return h("td", { class: differs ? "differs" : null },
    differs ? h("span", { class: "mark" }, "differs: ") : null,
    h("strong", {}, said.action === null ? "no action: " : ""), longText(said.action ?? said.reply),
    h("div", { class: "muted" }, longText(said.observation)),
    said.reward ? h("div", {}, `reward ${numberOf(said.reward)}`) : null);
}
