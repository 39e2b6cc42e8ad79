// Follows a run that is under way.
import { getJson } from "./api.js";

const PERIOD_MS = 1000;
const LONGEST_MS = 30000;
// A run that trains on this machine is not to be slowed: after each redraw, rest for this many times what it took.
const REST = 200;

// Calls `onChange` when files of the run have changed since its `version`, which the server gave before what is shown;
// not while nobody looks, nor while its last call is at work.
export function follow({ id, version: known }, signal, onChange) {
  const look = async () => {
    if (signal.aborted) return;
    let rest = PERIOD_MS;
    if (!document.hidden) {
      try {
        const { version } = await getJson(["runs", id, "changes"], {}, signal);
        const changed = version !== known;
        known = version;
        if (changed) rest = await timed(onChange);
      } catch {
        // a server that has ended says so where it is asked for more
      }
    }
    if (!signal.aborted) setTimeout(look, rest);
  };
  look();
}

const waiting = new WeakSet();

// Calls `draw` as soon as the focus is outside `place`: a row is not replaced while it has the focus.
export async function onceFree(place, signal, draw) {
  if (!place.contains(document.activeElement)) return draw();
  if (waiting.has(place)) return;
  waiting.add(place);
  const onLeave = ({ relatedTarget }) => {
    // the focus moves within `place`, or the whole window has lost it
    if (place.contains(relatedTarget) || !document.hasFocus()) return;
    place.removeEventListener("focusout", onLeave);
    waiting.delete(place);
    // the browser may be removing this very row
    setTimeout(() => { if (!signal.aborted) onceFree(place, signal, draw); });
  };
  place.addEventListener("focusout", onLeave, { signal });
}

async function timed(work) {
  const started = performance.now();
  await work();
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return Math.min(Math.max(REST * (performance.now() - started), PERIOD_MS), LONGEST_MS);
}
