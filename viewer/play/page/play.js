"use strict";
// The page on which a person plays. What the environment says is shown as text: nothing here parses HTML.
(() => {
  const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]/gu;
  const escaped = (value) =>
    String(value).replace(HIDDEN, (each) => "\\u" + each.codePointAt(0).toString(16).padStart(4, "0"));
  const find = (id) => document.getElementById(id);
  let episode = null;
  let busy = false;

  function h(tag, properties, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) element[name] = value;
    element.append(...children.map((each) => (each instanceof Node ? each : escaped(each))));
    return element;
  }

  async function ask(path, body) {
    const posted = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    const answered = await fetch(`api/play${path}`, posted);
    const answer = await answered.json();
    if (!answered.ok) throw new Error(answer.error);
    return answer;
  }

  // one thing at a time: a second click while the first is under way does nothing
  async function doing(work) {
    if (busy) return;
    busy = true;
    document.body.setAttribute("aria-busy", "true");
    find("said").textContent = "";
    try {
      await work();
    } catch (error) {
      find("said").textContent = escaped(error.message);
    } finally {
      busy = false;
      document.body.removeAttribute("aria-busy");
    }
  }

  const number = (value) => String(+value.toPrecision(6));

  function picture(name, place) {
    return name ? [h("img", { src: `api/play/media/${name}`, alt: `picture ${place}` })] : [];
  }

  function show(next) {
    episode = next;
    const turns = episode.turns.map((turn) =>
      h("li", {},
        h("div", { className: "faint" }, `turn ${turn.number}: `, h("b", {}, turn.action), `; reward ${number(turn.reward)}${turn.status === "ok" ? "" : `, ${turn.status}`}`),
        ...picture(turn.picture, `after turn ${turn.number}`), h("pre", {}, turn.observation)));
    const first = h("li", {}, ...picture(episode.opening_picture, "before the first turn"), h("pre", {}, episode.opening));
    find("turns").replaceChildren(first, ...turns);
    const of = episode.max_turns === null ? "" : ` of ${episode.max_turns}`;
    const dropped = episode.dropped_pictures ? `; ${episode.dropped_pictures} pictures were no small PNG and are not shown` : "";
    find("where").textContent = escaped(`task ${episode.task}, seed ${episode.seed}; ${turns.length}${of} turns; score ${number(episode.score)}${episode.over ? "; the episode is over" : ""}${dropped}`);
    find("say").hidden = episode.over;
    find("saving").hidden = !turns.length;
    find("valid").replaceChildren(...(episode.valid_actions ?? []).map((each) =>
      h("button", { type: "button", onclick: () => doing(() => act(each)) }, each)));
    if (!episode.over) find("action").focus();
    find("turns").lastElementChild.scrollIntoView({ block: "nearest" });
  }

  async function act(action) {
    show(await ask("/act", { action, turn: episode.turns.length + 1 }));
    find("action").value = "";
  }

  async function listTasks() {
    const query = new URLSearchParams({ split: find("split").value, words: find("task").value });
    const { tasks } = await ask(`/tasks?${query}`);
    find("tasks").replaceChildren(...tasks.map((each) => h("option", { value: each.id })));
  }

  function save(kind) {
    return async () => {
      const { file } = await ask("/save", { as: kind });
      find("where").textContent = escaped(`saved in ${file}`);
    };
  }

  find("choose").addEventListener("submit", (event) => {
    event.preventDefault();
    doing(async () => show(await ask("/begin", { task: find("task").value, seed: Number(find("seed").value) })));
  });
  find("say").addEventListener("submit", (event) => {
    event.preventDefault();
    const action = find("action").value;
    if (action) doing(() => act(action));
  });
  find("advise").addEventListener("click", () => doing(async () => {
    const { action } = await ask("/advise", {});
    if (action === null) throw new Error("there is no advice");
    find("action").value = action;
    find("action").focus();
  }));
  find("save-episode").addEventListener("click", () => doing(save("episode")));
  find("save-demonstration").addEventListener("click", () => doing(save("demonstration")));
  find("split").addEventListener("change", () => doing(listTasks));
  find("task").addEventListener("change", () => doing(listTasks));

  doing(async () => {
    const room = await ask("");
    document.title = escaped(`agym play ${room.name}`);
    find("name").textContent = escaped(room.name);
    find("summary").textContent = escaped(room.summary);
    find("guide").textContent = escaped(room.prompt);
    find("split").replaceChildren(...room.splits.map((each) => h("option", { value: each, selected: each === room.first.split }, each)));
    find("task").value = room.first.task ?? "";
    find("seed").value = room.first.seed;
    if (room.episode) show(room.episode);
    if (room.splits.length) await listTasks();
  });
})();
