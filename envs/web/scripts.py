"""What is run inside pages: before their own scripts, or in a world of its own that they cannot see into."""

from __future__ import annotations

__all__ = ["CHOOSE", "FIND_POINT", "FRAMES", "MAKE_READY", "SCROLL", "write_opening"]


def write_opening(seed: int) -> str:
    """Script that seeds randomness and stops animations."""
    return _OPENING.replace("SEED", str(seed % 0xFFFFFFFF + 1))


_OPENING = """(() => {
  let state = SEED;
  Math.random = function random() {
    state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
    return (state >>> 0) / 4294967296;
  };
  const still = new CSSStyleSheet();
  still.replaceSync(`*, *::before, *::after {
    animation-duration: 0s !important; animation-delay: 0s !important; transition: none !important;
    scroll-behavior: auto !important; caret-color: transparent !important;
  }`);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, still];
})()"""

FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
"""Comes back when what was done has been drawn."""

FIND_POINT = """function () {
  const element = this.nodeType === Node.TEXT_NODE ? this.parentElement : this;
  if (!element || !element.isConnected) return null;
  const areas = () => {
    if (this !== element) {
      const range = document.createRange();
      range.selectNodeContents(this);
      return [...range.getClientRects()];
    }
    return [...element.getClientRects()];
  };
  const outside = area => area.bottom <= 0 || area.right <= 0 || area.top >= innerHeight || area.left >= innerWidth;
  const reached = (x, y) => {
    const hit = document.elementFromPoint(x, y);
    return hit !== null && (hit === element || element.contains(hit));
  };
  const found = () => {
    for (const area of areas()) {
      for (const share of [0.5, 0.3, 0.7, 0.1, 0.9]) {
        for (const other of [0.5, 0.3, 0.7, 0.1, 0.9]) {
          const x = area.left + area.width * other, y = area.top + area.height * share;
          if (reached(x, y)) return {x, y};
        }
      }
    }
    return null;
  };
  let point = found();
  if (point === null) {
    element.scrollIntoView({block: "center", inline: "nearest", behavior: "instant"});
    point = found();
  }
  if (point !== null) return point;
  const [area] = areas().filter(area => !outside(area));
  return area ? {x: area.left + area.width / 2, y: area.top + area.height / 2} : null;
}"""
"""Where to put the mouse: first where nothing else lies above; null where the node is nowhere."""

MAKE_READY = """function (text) {
  const element = document.activeElement;
  if (!element || element === document.body) return "none";
  if (element.isContentEditable) { getSelection().selectAllChildren(element); return "keys"; }
  if (!(element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement)) return "none";
  if (element.disabled || element.readOnly) return "none";
  if (["checkbox", "radio", "button", "submit", "reset", "file", "image"].includes(element.type)) return "none";
  if (["date", "time", "month", "week", "datetime-local", "color", "range"].includes(element.type)) {
    const before = element.value;
    element.value = text;
    if (text && element.value !== text && element.type !== "range" && element.type !== "color") {
      element.value = before;
      return "refused " + element.type;
    }
    element.dispatchEvent(new Event("input", {bubbles: true}));
    element.dispatchEvent(new Event("change", {bubbles: true}));
    return "done";
  }
  element.select();
  return "keys";
}"""
"""What has the focus is made ready to be typed over; says whether keys are to follow."""

CHOOSE = """function (wanted) {
  const list = this.closest ? this.closest("select") : this.parentElement && this.parentElement.closest("select");
  if (!list) return "no list";
  const tidy = text => text.replace(/\\s+/g, " ").trim();
  const options = [...list.options], name = tidy(wanted);
  const option = options.find(each => tidy(each.label) === name || tidy(each.text) === name)
    || options.find(each => tidy(each.label).toLowerCase() === name.toLowerCase());
  if (!option) return "no option";
  if (list.disabled || option.disabled) return "disabled";
  list.focus();
  option.selected = list.multiple ? !option.selected : true;
  list.dispatchEvent(new Event("input", {bubbles: true}));
  list.dispatchEvent(new Event("change", {bubbles: true}));
  return "done";
}"""

SCROLL = """function (down) {
  const scrolls = element => {
    const style = getComputedStyle(element).overflowY;
    const own = element === document.scrollingElement || ["auto", "scroll"].includes(style)
      || element instanceof HTMLTextAreaElement;
    return own && element.scrollHeight > element.clientHeight + 1;
  };
  let element = this.nodeType === Node.TEXT_NODE ? this.parentElement : this;
  if (this.nodeType === Node.DOCUMENT_NODE) element = document.scrollingElement;
  while (element && !scrolls(element)) element = element.parentElement;
  element = element || document.scrollingElement;
  if (!element) return false;
  const before = element.scrollTop;
  const height = element === document.scrollingElement ? innerHeight : element.clientHeight;
  element.scrollBy({top: (down ? 0.8 : -0.8) * height, behavior: "instant"});
  return element.scrollTop !== before;
}"""
"""Scrolls by most of a window; says whether anything moved."""
