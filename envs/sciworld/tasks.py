"""The thirty tasks: their groups, their variations, and what is known of each variation.

Read from `data/tasks.json`, which `solvability` writes. The variations are cut into three parts as the simulator's
authors do: the first half for training, a quarter for choosing, the last quarter for evaluation.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

__all__ = ["DATA", "GROUPS", "HELD_OUT", "PARTS", "TASKS", "ScienceTask", "format_spans", "parse_spans"]

DATA = resources.files(__package__) / "data" / "tasks.json"

PARTS = ("train", "dev", "test")
HELD_OUT = "held_out"
"""Split of all that is not trained on."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "matter": ("boil", "melt", "freeze", "change-the-state-of-matter-of"),
    "measure": (
        "use-thermometer",
        "measure-melting-point-known-substance",
        "measure-melting-point-unknown-substance",
    ),
    "power": ("power-component", "power-component-renewable-vs-nonrenewable-energy"),
    "test_conductivity": ("test-conductivity", "test-conductivity-of-unknown-substances"),
    "find": ("find-living-thing", "find-non-living-thing", "find-plant", "find-animal"),
    "grow": ("grow-plant", "grow-fruit"),
    "chemistry_mix": (
        "chemistry-mix",
        "chemistry-mix-paint-secondary-color",
        "chemistry-mix-paint-tertiary-color",
    ),
    "lifespan": (
        "lifespan-longest-lived",
        "lifespan-shortest-lived",
        "lifespan-longest-lived-then-shortest-lived",
    ),
    "life_stages": ("identify-life-stages-1", "identify-life-stages-2"),
    "inclined_plane": (
        "inclined-plane-determine-angle",
        "inclined-plane-friction-named-surfaces",
        "inclined-plane-friction-unnamed-surfaces",
    ),
    "genetics": ("mendelian-genetics-known-plant", "mendelian-genetics-unknown-plant"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScienceTask:
    name: str
    group: str
    parts: Mapping[str, range]
    """Variations by the part they belong to."""
    screened: frozenset[int]
    """Variations that were played twice, in two processes."""
    left_out: frozenset[int]
    """Variations that played out differently the second time."""
    unsolved: frozenset[int]
    """Variations that the simulator's own solution does not solve."""

    def plays(self, variation: int) -> bool:
        return variation < self.parts["test"].stop and variation not in self.left_out

    def variations(self, part: str) -> tuple[int, ...]:
        parts = PARTS[1:] if part == HELD_OUT else (part,)
        return tuple(number for each in parts for number in self.parts[each] if number not in self.left_out)


def parse_spans(text: str) -> Iterator[int]:
    """Parse `0-3,7` as 0, 1, 2, 3, 7."""
    for span in filter(None, text.split(",")):
        first, _, last = span.partition("-")
        yield from range(int(first), int(last or first) + 1)


def format_spans(chosen: Collection[int]) -> str:
    """Inverse of `parse_spans`."""
    starts = [number for number in sorted(chosen) if number - 1 not in chosen]
    ends = [number for number in sorted(chosen) if number + 1 not in chosen]
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in zip(starts, ends, strict=True))


def _read() -> Iterator[ScienceTask]:
    rows = json.loads(DATA.read_text("utf-8"))
    for group, names in GROUPS.items():
        for name in names:
            row = rows[name]
            starts = (0, row["train"], row["train"] + row["dev"])
            yield ScienceTask(
                name=name,
                group=group,
                parts={part: range(start, start + row[part]) for part, start in zip(PARTS, starts, strict=True)},
                screened=frozenset(parse_spans(row["screened"])),
                left_out=frozenset(parse_spans(row["left_out"])),
                unsolved=frozenset(parse_spans(row["unsolved"])),
            )


TASKS: Mapping[str, ScienceTask] = {task.name: task for task in _read()}
