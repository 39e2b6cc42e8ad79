// What a server can do besides showing, as buttons of pages: tags, SFT data, replays. It says which of these it can.
import { getJson, postJson, urlOf } from "./api.js";
import { h } from "./dom.js";
import { addKeys } from "./keys.js";
import { hrefOf } from "./router.js";
import { slots } from "./slots.js";
import { countOf } from "./text.js";

const BUTTONS = {
  replay: { episode: [addReplay] },
  tags: { episode: [addTags], episodes: [addTagged] },
};

export async function addActions() {
  const { abilities } = await getJson(["abilities"]).catch(() => ({ abilities: [] }));
  for (const ability of abilities) {
    for (const [slot, added] of Object.entries(BUTTONS[ability] ?? {})) slots[slot].push(...added);
  }
}

// Plays the episode again in its environment, and tells the first difference.
function addReplay(element, { run, answer, signal }) {
  const said = h("output", { class: "said" });
  const button = h("button", { type: "button", onclick: () => replay() }, "Replay");
  element.append(button, said);
  addKeys(signal, [{ key: "l", text: "play the episode again in its environment", run: () => replay() }]);

  async function replay() {
    if (button.disabled) return;
    button.disabled = true;
    said.textContent = "playing it again…";
    try {
      said.replaceChildren(...outcome(await postJson(["replay"], { run, episode: answer.episode.id }, signal)));
    } catch (error) {
      said.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  }
}

function outcome({ turns, skipped, difference }) {
  const passed = skipped ? `; ${countOf(skipped)} replies without an action were passed over` : "";
  if (difference === null) return [`The same again: ${countOf(turns)} turns${passed}.`];
  const place = difference.turn ? `turn ${difference.turn}` : "what was seen first";
  return [
    `The first difference is in ${place}, ${difference.what}:`,
    h("span", { class: "line" }, ` recorded “${difference.recorded}”,`),
    h("span", { class: "line" }, ` now “${difference.now}”`),
  ];
}

function addTags(element, { run, answer, signal }) {
  const { id } = answer.episode;
  const given = h("span", { class: "row" });
  const field = h("input", { type: "text", "aria-label": "New tag", placeholder: "tag", maxlength: 40 });
  const said = h("output", { class: "said" });
  element.append(
    h("form", { class: "row", "aria-label": "Tags", onsubmit: (event) => { event.preventDefault(); change(field.value, true); } }, given, field, h("button", { type: "submit" }, "Add tag")),
    h("a", { class: "button", href: exportOf(run, { id }), download: true }, "SFT data"),
    said,
  );
  addKeys(signal, [{ key: "+", text: "add a tag", run: () => field.focus() }]);
  getJson(["runs", run, "tags"], {}, signal).then(({ episodes }) => draw(episodes.find((each) => each.id === id)?.tags ?? []), () => {});

  function draw(tags) {
    given.replaceChildren(...tags.map((tag) => h("button", { type: "button", title: "take this tag away", "aria-label": `take away tag ${tag}`, onclick: () => change(tag, false) }, `${tag} ×`)));
  }

  async function change(tag, on) {
    try {
      draw((await postJson(["tags"], { run, episode: id, tag, on }, signal)).tags);
      said.textContent = "";
      field.value = on ? "" : field.value;
    } catch (error) {
      said.textContent = error.message;
    }
  }
}

// Of a list of episodes: which are tagged, and their SFT data.
function addTagged(element, { run, signal }) {
  getJson(["runs", run, "tags"], {}, signal).then(({ episodes }) => {
    const byTag = new Map();
    for (const { id, tags } of episodes) for (const tag of tags) byTag.set(tag, [...(byTag.get(tag) ?? []), id]);
    if (!byTag.size) return;
    const lines = [...byTag].sort().map(([tag, ids]) => h("li", {}, `${tag}: `, ids.slice(0, 50).flatMap((id) => [h("a", { href: hrefOf(["runs", run, "episodes", id]) }, id), " "]), h("a", { href: exportOf(run, { tag }), download: true }, `SFT data of ${countOf(ids.length)}`)));
    element.append(h("details", {}, h("summary", {}, "Tagged"), h("ul", {}, lines)));
  }, () => {});
}

function exportOf(run, query) {
  return urlOf(["runs", run, "export.jsonl"], query);
}
