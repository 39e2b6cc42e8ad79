"""A task of the shell: what is asked, the files at the start, a solution, and what is checked in the end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

__all__ = ["WORK", "Draw", "FileIs", "Passes", "Prints", "ShellTask", "call_python", "quote_json"]

WORK = "/repo"

_WORDS = (
    "amber anchor apple arrow ash badge basin beacon birch bolt brick bridge bronze cabin canal candle canyon cedar "
    "chalk cinder clay cliff clover cobalt comet copper coral cotton crane crater creek crystal dahlia delta dune "
    "eagle echo elder ember falcon fern field flint fossil fox garnet glacier grove gull harbor hazel heron hill iris "
    "iron island ivory ivy jade jasper juniper kelp kettle lagoon lantern lark laurel ledge lemon lichen lily linen "
    "lotus maple marble marsh meadow mint mirror moss nectar nettle oak oasis olive onyx opal orchid otter owl oyster "
    "palm pearl pebble pepper pine plum pond poplar prism quail quartz raven reed ridge river robin saddle sage salt "
    "sand shell slate sparrow spruce stone storm summit swan thistle tide timber topaz tulip valley velvet violet "
    "walnut willow wren zinc"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prints:
    """A command, and what it must print when it is run on what the agent has left."""

    command: str
    output: str = ""
    fails: bool = False
    """Whether it must end with another code than 0."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the agent has not seen, written before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIs:
    """What a file must hold, except for space at the ends of its lines."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Tests that must pass on what the agent has left: a command, which ends with 0 where they do."""

    command: str
    files: Mapping[str, bytes]
    """Below `/tests`; the agent has not seen them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTask:
    goal: str
    files: Mapping[str, str | bytes]
    solution: tuple[str, ...]
    """Commands that solve it."""
    checks: tuple[Prints | FileIs | Passes, ...]
    setup: str = ""
    """Commands that are run before the agent comes."""
    id: str = ""
    group: str = ""
    work: str = WORK
    """The folder it is worked in."""


class Draw:
    """Randomness and names of one task; training and held-out tasks share no name."""

    def __init__(self, seed: str, *, held_out: bool) -> None:
        self.rng = Random(f"shell {seed}")
        self._words = _WORDS.split()[held_out::2]
        self.rng.shuffle(self._words)

    def word(self) -> str:
        """A name that was not given before."""
        return self._words.pop()

    def words(self, count: int) -> tuple[str, ...]:
        return tuple(self.word() for _ in range(count))

    def number(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)


def call_python(module: str, expression: str) -> str:
    """A command that prints the value of an expression with all that a module of the work folder offers."""
    return f"python3 -c {shlex.quote(f'from {module} import *; print({expression})')}"


def quote_json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
