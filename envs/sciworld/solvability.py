"""Screen the variations: which of them play out the same way each time, and which the simulator's own solution solves.

    python -m agym.envs.sciworld.solvability --minutes 15

Extends `data/tasks.json` and `data/words.txt` with more screened variations, those of the test part first, after every
round. Each variation is played by its solution in two processes at the same time, in the second next to a neighbour and
in the opposite order; what differs is left out of all splits. Run it again to continue.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from random import Random

from .java import Javas, Simulator
from .tasks import DATA, PARTS, TASKS, format_spans, parse_spans

__all__ = ["main"]

_HEAP_MB = 512
_BATCH = 12
"""Variations in a round."""
_WORD = re.compile(r"[^\W\d]+(?:['\-]\w+)*|\d\b|[^\w\s]")
"""No number of several digits: what thermometers show has no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedVariation:
    digest: str
    solved: bool
    num_actions: int
    words: frozenset[str]


_Round = dict[tuple[str, int], PlayedVariation]


@dataclass(slots=True, kw_only=True)
class TaskRow:
    """Screening state of a task."""

    sizes: Mapping[str, int]
    screened: set[int] = field(default_factory=set)
    left_out: set[int] = field(default_factory=set)
    unsolved: set[int] = field(default_factory=set)
    longest: int = 0
    """Actions of the longest solution."""

    @property
    def waiting(self) -> list[int]:
        every = range(sum(self.sizes.values()))
        return [number for number in reversed(every) if number not in self.screened]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="agym.envs.sciworld.solvability", description="Screen ScienceWorld's variations."
    )
    parser.add_argument("--minutes", type=float, default=15.0, help="to begin no round after")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK", help="only these")
    args = parser.parse_args(argv)
    until = time.monotonic() + 60 * args.minutes
    folder = Path(str(DATA)).parent
    rows, words = _rows(folder), _words(folder)
    processes = Javas(_HEAP_MB, 1), Javas(_HEAP_MB, 1)
    first, second, neighbour = processes[0].simulator(), processes[1].simulator(), processes[1].simulator()
    _check(rows, first)
    neighbour.load("find-animal", 0, "")
    with ThreadPoolExecutor(2) as at_once:
        while time.monotonic() < until and (batch := _next_batch({name: rows[name] for name in args.tasks})):
            words |= _screen(batch, rows, first, second, neighbour, at_once)
            _write(folder, rows, words)
            print(f"{sum(len(row.screened) for row in rows.values())} screened", flush=True)


def _rows(folder: Path) -> dict[str, TaskRow]:
    known = json.loads((folder / "tasks.json").read_text("utf-8"))
    return {
        name: TaskRow(
            sizes={part: row[part] for part in PARTS},
            longest=row["longest"],
            **{key: set(parse_spans(row[key])) for key in ("screened", "left_out", "unsolved")},
        )
        for name, row in known.items()
    }


def _check(rows: Mapping[str, TaskRow], simulator: Simulator) -> None:
    """Check that the simulator divides its variations as the data say."""
    for name, row in rows.items():
        simulator.load(name, 0, "")
        sets = simulator.sets()
        whole = [number for part in sets for number in part] == list(range(sum(row.sizes.values())))
        if not whole or [len(part) for part in sets] != list(row.sizes.values()):
            raise SystemExit(f"this version of the simulator has other variations of {name}")


def _words(folder: Path) -> set[str]:
    file = folder / "words.txt"
    return set(file.read_text("utf-8").split()) if file.exists() else set()


def _next_batch(rows: Mapping[str, TaskRow]) -> list[tuple[str, int]]:
    """Variations to screen next: from every task in proportion to what is left, at least one."""
    waiting = sum(len(row.waiting) for row in rows.values())
    shares = ((name, row.waiting[: max(1, _BATCH * len(row.waiting) // max(1, waiting))]) for name, row in rows.items())
    return [(name, number) for name, some in shares for number in some]


def _screen(
    batch: Sequence[tuple[str, int]],
    rows: Mapping[str, TaskRow],
    first: Simulator,
    second: Simulator,
    neighbour: Simulator,
    at_once: Executor,
) -> set[str]:
    def solved(simulator: Simulator, some: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[str, ...]]:
        return {each: _solution(simulator, *each) for each in some}

    def played(simulator: Simulator, some: Sequence[tuple[str, int]], beside: Simulator | None) -> _Round:
        return {each: _play(simulator, *each, solutions[each], beside) for each in some}

    halves = at_once.submit(solved, first, batch[::2]), at_once.submit(solved, second, batch[1::2])
    solutions = halves[0].result() | halves[1].result()
    rounds = at_once.submit(played, first, batch, None), at_once.submit(played, second, batch[::-1], neighbour)
    once, again = rounds[0].result(), rounds[1].result()
    for name, number in batch:
        row, one, other = rows[name], once[name, number], again[name, number]
        row.screened.add(number)
        row.longest = max(row.longest, one.num_actions if one.solved else 0)
        if one.digest != other.digest:
            row.left_out.add(number)
        if not (one.solved and other.solved):
            row.unsolved.add(number)
    return set().union(*(each.words for each in once.values()))


def _solution(simulator: Simulator, name: str, number: int) -> tuple[str, ...]:
    simulator.load(name, number, "", solve=True)
    return simulator.solution()


def _play(
    simulator: Simulator, name: str, number: int, solution: Sequence[str], neighbour: Simulator | None = None
) -> PlayedVariation:
    """Play the solution, then something at random."""
    simulator.load(name, number, "")
    seen = [simulator.description(), simulator.look(), *simulator.objects()]
    at, solved = -1, False
    for at, action in enumerate(solution):
        if neighbour is not None and at % 4 == 0:
            neighbour.step("wait1")
        outcome = simulator.step(action)
        seen += [action, outcome.text, repr(outcome.score)]
        solved = outcome.over and outcome.score == 1.0
        if outcome.over:
            break
    seen += _wandered(simulator)
    words = _WORD.findall(" ".join(seen))
    digest = blake2b("\n".join(seen).encode()).hexdigest()
    return PlayedVariation(digest=digest, solved=solved, num_actions=at + 1, words=frozenset(words))


def _wandered(simulator: Simulator) -> list[str]:
    rng, seen = Random(0), list[str]()
    for what in ("look in", "pick up", "open", "move", "look at"):
        action = f"{what} {rng.choice(simulator.objects())}"
        seen += [action, simulator.step(action).text]
        simulator.take_back()
    return seen


def _write(folder: Path, rows: Mapping[str, TaskRow], words: Iterable[str]) -> None:
    listed = {
        name: dict(row.sizes)
        | {"longest": row.longest}
        | {key: format_spans(getattr(row, key)) for key in ("screened", "left_out", "unsolved")}
        for name, row in rows.items()
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in listed.items())
    (folder / "tasks.json").write_text(f"{{\n{lines}\n}}\n", "utf-8")
    (folder / "words.txt").write_text("\n".join(sorted(words)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
