// Follows a run that is under way.
import { getJson } from "./api.js";

const PERIOD_MS = 1000;
const LONGEST_MS = 30000;
// A run that trains on this machine is not to be slowed: after each redraw, rest for this many times what it took.
const REST = 200;

// Calls `onChange` when files of the run have changed; not while nobody looks, nor while its last call is at work.
export function follow(run, signal, onChange) {
  let known = null;
  const look = async () => {
    if (signal.aborted) return;
    let rest = PERIOD_MS;
    if (!document.hidden) {
      try {
        const { version } = await getJson(["runs", run, "changes"], {}, signal);
        const changed = known !== null && version !== known;
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

async function timed(work) {
  const started = performance.now();
  await work();
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return Math.min(Math.max(REST * (performance.now() - started), PERIOD_MS), LONGEST_MS);
}
