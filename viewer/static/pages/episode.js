// One episode, with the way to the others of its group and of its task.
import { getJson, urlOf } from "../api.js";
import { h } from "../dom.js";
import { renderEpisode } from "../episode.js";
import { addKeys } from "../keys.js";
import { hrefOf, setQuery } from "../router.js";
import { fillSlot } from "../slots.js";

export async function showEpisode({ root, parameters, query, signal, title }) {
  const { run, episode } = parameters;
  const answer = await getJson(["runs", run, "episodes", episode], {}, signal);
  title(`${answer.episode.id}, ${answer.episode.task}`);
  const hrefOfEpisode = (id) => hrefOf(["runs", run, "episodes", id], kept());
  const status = document.getElementById("status");
  const copying = h("button", { type: "button", onclick: () => copy() }, "Copy as JSON");
  const step = (id, text) => (id === null ? h("span", { class: "button off", "aria-disabled": "true", role: "link" }, text) : h("a", { class: "button", href: hrefOfEpisode(id) }, text));
  const toolbar = h(
    "div",
    { class: "toolbar" },
    step(answer.previous, "← Previous in group"),
    step(answer.next, "Next in group →"),
    answer.group.length > 1 ? h("a", { class: "button", href: sideBySide() }, "Group side by side") : null,
    h("a", { class: "button", href: hrefOfTask(answer.episode.environment, answer.episode.task) }, "This task over steps"),
    copying,
  );
  fillSlot("episode", toolbar, { run, answer, signal });
  const place = h("div", {});
  root.replaceChildren(h("h1", {}, `Episode ${answer.episode.id}`), toolbar, place);
  renderEpisode(place, answer, {
    turn: Number(query.get("turn")) || 1,
    color: query.get("color") ?? "logprob",
    all: query.get("all") === "1",
    onChange: ({ turn, color, all }) => setQuery({ turn: turn === 1 ? null : turn, color: color === "logprob" ? null : color, all: all ? 1 : null }),
    hrefOfEpisode,
    hrefOfTask,
    pictureUrl: (name) => urlOf(["runs", run, "pictures", name]),
    signal,
  });
  addKeys(signal, [
    { key: "[", text: "previous episode of the group", run: () => open(answer.previous) },
    { key: "]", text: "next episode of the group", run: () => open(answer.next) },
    { key: "g", text: "the group side by side", run: () => { if (answer.group.length > 1) location.hash = sideBySide(); } },
    { key: "o", text: "this task over the steps", run: () => { location.hash = hrefOfTask(answer.episode.environment, answer.episode.task); } },
    { key: "e", text: "episodes of the run", run: () => { location.hash = hrefOf(["runs", run, "episodes"]); } },
    { key: "y", text: "copy as JSON", run: () => copy() },
  ]);

  // how tokens are shaded goes on to the next episode
  function kept() {
    const color = new URLSearchParams(location.hash.split("?")[1] ?? "").get("color");
    return color ? { color } : {};
  }

  function hrefOfTask(environment, task) {
    return hrefOf(["runs", run, "task"], { environment, task });
  }

  function sideBySide() {
    return hrefOf(["runs", run, "turns"], { id: answer.group.slice(0, 16).map((each) => each.id) });
  }

  function open(id) {
    if (id !== null) location.hash = hrefOfEpisode(id);
  }

  async function copy() {
    try {
      await navigator.clipboard.writeText(JSON.stringify(answer.record));
      status.textContent = "The episode's line is on the clipboard.";
    } catch {
      status.textContent = "This browser does not let the page write to the clipboard.";
    }
    setTimeout(() => { status.textContent = ""; }, 4000);
  }
}
