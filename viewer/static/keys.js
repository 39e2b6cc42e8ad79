// Keys of the page that is shown, and the dialog that lists them.
import { addChildren, h } from "./dom.js";

const known = new Map();
const KEPT_AS = "agym-letter-keys";
const NAMES = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", " ": "Space" };

// Each is `{key, text, run}`; they end with the signal.
export function addKeys(signal, keys) {
  for (const each of keys) {
    known.set(each.key, each);
    signal?.addEventListener("abort", () => known.get(each.key) === each && known.delete(each.key));
  }
}

export function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (isTyping(event) || document.querySelector("dialog[open]")) return;
    if (event.key.length === 1 && event.key !== "?" && !lettersAreOn()) return;
    const found = known.get(event.key);
    if (!found) return;
    event.preventDefault();
    found.run(event);
  });
}

export function showKeys() {
  const rows = [...known.values()].map((each) =>
    h("tr", {}, h("td", {}, h("kbd", {}, NAMES[each.key] ?? each.key)), h("td", {}, each.text)),
  );
  const letters = h("input", { type: "checkbox", checked: lettersAreOn(), onchange: (event) => keepLetters(event.target.checked) });
  const dialog = h(
    "dialog",
    { "aria-labelledby": "keys-title", onclose: () => dialog.remove() },
    h("h2", { id: "keys-title" }, "Keys"),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Key"), h("th", { scope: "col" }, "Does"))), h("tbody", {}, rows)),
    h("p", {}, h("label", {}, letters, " single keys do something")),
    h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); dialog.close(); } }, h("button", { type: "submit" }, "Close")),
  );
  addChildren(document.body, [dialog]);
  dialog.showModal();
}

function isTyping(event) {
  const target = event.target;
  if (!(target instanceof Element)) return false;
  if (target.matches("textarea, select, input:not([type=checkbox]):not([type=radio]):not([type=range])")) return event.key !== "Escape";
  return event.key === " " && target.matches("button, a, summary, input");
}

function lettersAreOn() {
  try {
    return localStorage.getItem(KEPT_AS) !== "off";
  } catch {
    return true;
  }
}

function keepLetters(on) {
  try {
    localStorage.setItem(KEPT_AS, on ? "on" : "off");
  } catch {
    // a browser that keeps nothing
  }
}
