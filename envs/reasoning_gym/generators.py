"""Generators by name, the problems they make, and what an answer to one is worth.

Only those that `data/generators.txt` lists: their problems are the same in every process and thread, and their
verifiers run nothing that an agent has written and do not accept wrong answers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import isfinite
from types import ModuleType
from typing import Any

from ..errors import BadOption, suggest
from ..tables import read_table
from .options import ReasoningGymOptions

# all generators are imported together, and one of them asks for a package that needs a compiler: it is left out
if "pycosat" not in sys.modules and find_spec("pycosat") is None:
    sys.modules["pycosat"] = ModuleType("pycosat")

import reasoning_gym

__all__ = ["FIRST_SEED", "Generator", "ReasoningProblem", "load_left_out", "load_solid"]

FIRST_SEED: Mapping[str, int] = {"train": 0, "test": 1_000_000}
"""A problem is made from the sum of this and its number: no split reaches into the other."""


@dataclass(frozen=True, slots=True)
class ReasoningProblem:
    entry: Mapping[str, Any]
    maker: Any

    @property
    def question(self) -> str:
        return str(self.entry["question"]).strip()

    @property
    def answer(self) -> str | None:
        """The generator's own, if it has one."""
        return None if self.entry["answer"] is None else str(self.entry["answer"])

    def score(self, answer: str) -> float:
        """Score by the verifier, from 0 to 1; 0 where the verifier itself fails, as some do on unreadable answers."""
        try:
            given = float(self.maker.score_answer(answer=answer, entry=dict(self.entry)))
        except Exception:
            return 0.0
        return min(1.0, max(0.0, given)) if isfinite(given) else 0.0


class Generator:
    """Makes the problems of a split."""

    def __init__(self, options: ReasoningGymOptions, first_seed: int) -> None:
        name = options.dataset
        if name in load_left_out():
            raise BadOption(f"the generator '{name}' is left out: {load_left_out()[name]}")
        if name not in load_solid():
            raise BadOption(f"reasoning_gym has no generator '{name[:60]}'{suggest(name, load_solid())}")
        try:
            self._maker = reasoning_gym.create_dataset(name, seed=first_seed, size=options.size, **options.config)
        except (AssertionError, TypeError, ValueError) as error:
            raise BadOption(f"the generator '{name}' does not take this 'config': {error}") from error

    def problem(self, number: int) -> ReasoningProblem:
        return ReasoningProblem(self._maker[number], self._maker)


@cache  # the frozen lists
def load_solid() -> Mapping[str, str]:
    """Usable generators by name, with the share of problems whose own answer is accepted."""
    return read_table(__package__, "generators.txt")


@cache
def load_left_out() -> Mapping[str, str]:
    """Generators that are left out, with the reason."""
    return read_table(__package__, "left_out.txt")
