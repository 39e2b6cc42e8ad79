// Texts, numbers and times as people read them. What is not seen on a page, or turns its text around, becomes an escape.

// Controls but for tab and line feed, marks of direction, what has no width, lone surrogates, tags, private use.
const UNSEEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u115f\\u1160\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e" +
    "\\u2060-\\u206f\\u3164\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff\\u{e0000}-\\u{e007f}]",
  "gu",
);
const SHOWN_AT_ONCE = 20000;
const MISSING = "not recorded";

export function textOf(value) {
  return String(value).replace(UNSEEN, (found) => {
    const code = found.codePointAt(0).toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
  });
}

// A text in its lines; the end of a very long one waits behind a button.
export function longText(text, className = "text") {
  const whole = String(text);
  const box = document.createElement("div");
  box.className = className;
  box.dir = "auto";
  const cut = whole.length > SHOWN_AT_ONCE;
  box.textContent = textOf(cut ? whole.slice(0, SHOWN_AT_ONCE) : whole);
  if (cut) {
    const more = document.createElement("button");
    more.type = "button";
    more.textContent = `show all ${countOf(whole.length)} characters`;
    more.addEventListener("click", () => {
      box.textContent = textOf(whole);
      box.tabIndex = -1;
      box.focus();
    });
    box.append(document.createElement("br"), more);
  }
  return box;
}

export function numberOf(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return textOf(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return countOf(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(Math.max(digits, Math.floor(Math.log10(size || 1)) + 1))));
}

export function countOf(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US");
}

export function shareOf(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`;
}

export function intervalOf(interval) {
  return interval ? `[${interval.map((each) => (100 * each).toFixed(1)).join(", ")}]` : "";
}

export function secondsOf(value) {
  if (value === null || value === undefined) return "–";
  if (value < 100) return `${numberOf(value)} s`;
  if (value < 6000) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

export function momentOf(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.valueOf()) ? "–" : date.toISOString().slice(0, 19).replace("T", " ");
}

export function yesOrNo(value) {
  return value === null || value === undefined ? MISSING : value ? "yes" : "no";
}

export function orMissing(value) {
  return value === null || value === undefined || value === "" ? MISSING : value;
}
