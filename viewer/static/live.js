// Follows a run that is under way.
import { getJson } from "./api.js";

const PERIOD_MS = 1000;

// Calls `onChange` when files of the run have changed; not while nobody looks, nor while its last call is at work.
export function follow(run, signal, onChange) {
  let known = null;
  const look = async () => {
    if (signal.aborted) return;
    if (!document.hidden) {
      try {
        const { version } = await getJson(["runs", run, "changes"], {}, signal);
        const changed = known !== null && version !== known;
        known = version;
        if (changed) await onChange();
      } catch {
        // a server that has ended says so where it is asked for more
      }
    }
    if (!signal.aborted) setTimeout(look, PERIOD_MS);
  };
  look();
}
