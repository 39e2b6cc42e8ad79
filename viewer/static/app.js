// Starts the pages: routes, keys, light and dark.
import { addChildren, h } from "./dom.js";
import { addKeys, listenToKeys, showKeys } from "./keys.js";
import { addRoute, findRoute, hrefOf } from "./router.js";
import { textOf } from "./text.js";
import { showCompare } from "./pages/compare.js";
import { showEpisode } from "./pages/episode.js";
import { showEpisodes } from "./pages/episodes.js";
import { showRun } from "./pages/run.js";
import { showRuns } from "./pages/runs.js";
import { showSideBySide } from "./pages/side-by-side.js";
import { showTask } from "./pages/task.js";

const THEMES = ["auto", "light", "dark"];
const THEME_KEPT_AS = "agym-theme";
const main = document.getElementById("main");
let leave = new AbortController();

addRoute("/", showRuns);
addRoute("/runs/:run", showRun);
addRoute("/runs/:run/episodes", showEpisodes);
addRoute("/runs/:run/episodes/:episode", showEpisode);
addRoute("/runs/:run/turns", showSideBySide);
addRoute("/runs/:run/task", showTask);
addRoute("/compare", showCompare);

async function show(focus) {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const address = location.hash;
  const found = findRoute(address);
  const root = h("div", { class: "page" });
  main.replaceChildren(root);
  showTrail(found);
  const title = (text) => { document.title = `${textOf(text)} · agym view`; };
  addKeys(signal, [
    { key: "?", text: "these keys", run: showKeys },
    { key: "r", text: "runs", run: () => { location.hash = hrefOf([]); } },
    { key: "t", text: "light, dark, or as the system has it", run: nextTheme },
  ]);
  // a page that is soon there does not flicker
  const waiting = setTimeout(() => { if (!root.children.length) root.append(h("p", { class: "muted" }, "reading…")); }, 300);
  try {
    if (!found) throw new Error("there is no such page");
    await found.show({ root, parameters: found.parameters, query: found.query, signal, title });
  } catch (error) {
    if (!signal.aborted) showProblem(root, error, title);
  } finally {
    clearTimeout(waiting);
  }
  if (!signal.aborted && focus) main.focus({ preventScroll: true });
  if (!signal.aborted) document.documentElement.dataset.shown = address || "#/";
}

function showProblem(root, error, title) {
  title("Not shown");
  root.replaceChildren(h("h1", {}, "This cannot be shown"), h("p", { class: "problem", role: "alert" }, error.message), h("p", {}, h("a", { href: hrefOf([]) }, "All runs")));
}

function showTrail(found) {
  const run = found?.parameters.run;
  const links = [h("a", { href: hrefOf([]) }, "Runs")];
  if (run) links.push(h("a", { href: hrefOf(["runs", run]) }, run), h("a", { href: hrefOf(["runs", run, "episodes"]) }, "Episodes"));
  const here = `#${location.hash.replace(/^#/, "").split("?")[0] || "/"}`;
  for (const link of links) if (link.getAttribute("href") === here) link.setAttribute("aria-current", "page");
  const nav = document.getElementById("nav");
  nav.replaceChildren();
  addChildren(nav, [links]);
}

// --- light and dark

function themeOf() {
  try {
    const kept = localStorage.getItem(THEME_KEPT_AS);
    return THEMES.includes(kept) ? kept : "auto";
  } catch {
    return document.documentElement.dataset.theme ?? "auto";
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  themeButton.textContent = `Theme: ${theme}`;
  try {
    localStorage.setItem(THEME_KEPT_AS, theme);
  } catch {
    // a browser that keeps nothing
  }
  document.dispatchEvent(new Event("themechange"));
}

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
}

const themeButton = h("button", { type: "button", onclick: nextTheme });
addChildren(document.getElementById("tools"), [themeButton, h("button", { type: "button", onclick: showKeys, "aria-label": "Keys" }, "?")]);
setTheme(themeOf());
listenToKeys();
addEventListener("hashchange", () => { scrollTo(0, 0); show(true); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
show(false);
