"""The ids that tasks had when they were released: how many each split began with, and their digest, in `ids.json`.

Results are compared by a task's id, so it stays: a split may grow at its end, but loses, moves and renames nothing.

    python -m agym.envs.releases       records what has been added; exits with 1 where an id has changed

A new environment enters the file by hand, with its options and no splits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from .protocol import Json
from .registry import factory

__all__ = ["Ids", "main", "released_ids"]

_FILE = Path(__file__).parent / "ids.json"


@dataclass(frozen=True, slots=True)
class Ids:
    """Number and digest of the ids that a split began with."""

    count: int
    digest: str

    @classmethod
    def of(cls, ids: Sequence[str]) -> Ids:
        return cls(len(ids), sha256("\n".join(ids).encode()).hexdigest())

    def begin(self, ids: Sequence[str]) -> bool:
        return Ids.of(ids[: self.count]) == self


def released_ids(env: str, options: Mapping[str, Json]) -> Mapping[str, Ids]:
    """Released ids by split; empty where none were recorded for these options."""
    known = json.loads(_FILE.read_text("utf-8")).get(env)
    if known is None or known["options"] != dict(options):
        return {}
    return {split: Ids(count, digest) for split, (count, digest) in known["splits"].items()}


def main(file: Path = _FILE) -> int:
    known = json.loads(file.read_text("utf-8"))
    changed = [f"{env}: {split}" for env in known for split in _renew(env, known[env])]
    if changed:
        print(f"no longer begins with the ids it had: {', '.join(changed)}", file=sys.stderr)
        return 1
    file.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", "utf-8")
    return 0


def _renew(env: str, entry: dict[str, Any]) -> list[str]:
    """Update an entry to what the environment lists now; return the splits whose beginning has changed."""
    instance = factory(env, entry["options"])()
    changed = []
    for split in instance.spec.splits:
        ids = instance.tasks(split)
        known = entry["splits"].get(split)
        if known is not None and not Ids(*known).begin(ids):
            changed.append(split)
        now = Ids.of(ids)
        entry["splits"][split] = [now.count, now.digest]
    instance.close()
    return changed + sorted(set(entry["splits"]) - set(instance.spec.splits))


if __name__ == "__main__":
    sys.exit(main())
