"""Counting: reach a number by adding to, or taking from, the one shown. Made to be copied.

The score is how near the number has come, so this is also the example of partial credit. Its imports are absolute, so
that a copy works wherever it lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter
from random import Random

from agym.envs.errors import EpisodeOver, UnknownTask
from agym.envs.options import read_options
from agym.envs.protocol import Env, EnvSpec, Json, Observation, Reached, Runs, Score, Status, Step

__all__ = ["Counter", "CounterOptions", "create"]

_HELD_OUT: Mapping[str, bool] = {"train": False, "test": True}
_MOVES: Mapping[str, int] = {"add 1": 1, "add 5": 5, "take 1": -1}
_NO_COMMAND = "That is not a command: give add 1, add 5 or take 1."


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterOptions:
    """The options that `env.json` describes."""

    largest: int = 30


def create(options: Mapping[str, Json]) -> Counter:
    """Make an instance from options; the registry's entry point."""
    return Counter(read_options(CounterOptions, options).largest)


class Counter(Env):
    spec = EnvSpec(
        name="counter",
        version="1",
        summary="reach a number, one small sum at a time",
        splits=tuple(_HELD_OUT),
        score=Score.LAST,
        prompt="Change the number until it is the goal. Each turn, give one command: add 1, add 5 or take 1.",
        runs=Runs.INLINE,
    )

    def __init__(self, largest: int = 30) -> None:
        self._largest = largest
        self._enough = largest // 5 + 4
        self.spec = replace(self.spec, max_turns=self._enough)
        self._goal: int | None = None
        self._number = 0
        self._num_steps = 0

    def tasks(self, split: str) -> tuple[str, ...]:
        self.check_split(split)
        goals = range(1, self._largest + 1)
        return tuple(f"reach-{goal}" for goal in goals if _held_out(goal) == _HELD_OUT[split])

    def reset(self, task: str, seed: int) -> Observation:
        self._goal, self._number, self._num_steps = self._find(task), self._start(task, seed), 0
        return _first(self._number, self._goal)

    def step(self, action: str) -> Step:
        if self._goal is None:
            raise EpisodeOver("counter has no episode under way: reset it first")
        move = _move(action)
        self._number += move or 0
        self._num_steps += 1
        reached, too_long = self._number == self._goal, self._num_steps >= 2 * self._enough
        text = _NO_COMMAND if move is None else f"The number is {self._number}."
        step = Step(
            observation=Observation(text=text, valid_actions=tuple(_MOVES)),
            # an action that was not understood leaves the score where it was
            reward=1.0 if reached else max(0.0, 0.9 - abs(self._goal - self._number) / 40),
            terminated=reached,
            truncated=too_long and not reached,
            status=Status.OK if move is not None else Status.INVALID,
            info={"state": f"{self._number} to {self._goal}"},
        )
        if step.ended:
            self._goal = None
        return step

    def difficulty(self, task: str) -> str:
        return "near" if 2 * self._find(task) <= self._largest else "far"

    def expert(self, task: str, seed: int) -> tuple[str, ...]:
        goal, number, actions = self._find(task), self._start(task, seed), []
        while (action := _toward(goal, number)) is not None:
            number += _MOVES[action]
            actions.append(action)
        return tuple(actions)

    def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...]:
        """Numbers on the way that are goals of training."""
        goal, start = self._find(task), self._start(task, seed)
        if _held_out(goal):
            return ()
        numbers = accumulate((_move(action) or 0 for action in actions), initial=start)
        first_at = {number: at for at, number in reversed([*enumerate(numbers)])}
        return tuple(
            Reached(task=f"reach-{number}", actions=at, first=_first(start, number))
            for number, at in sorted(first_at.items(), key=itemgetter(1))
            if 1 <= number <= self._largest and not _held_out(number) and number not in (start, goal)
        )

    def advice(self) -> str | None:
        return None if self._goal is None else _toward(self._goal, self._number)

    def noise_action(self, rng: Random) -> str:
        return rng.choice(tuple(_MOVES))

    def corpus(self) -> Iterator[str]:
        yield self.spec.prompt
        yield from _MOVES
        yield from (f"The number is {number}; the goal is {number}." for number in range(self._largest + 10))
        yield _NO_COMMAND

    def _find(self, task: str) -> int:
        """The goal of a task."""
        known = {f"reach-{goal}": goal for goal in range(1, self._largest + 1)}
        if task not in known:
            raise UnknownTask(f"counter has no task '{task[:60]}'")
        return known[task]

    def _start(self, task: str, seed: int) -> int:
        """Starting number below the goal, the same for the same task and seed."""
        return Random(f"{task} {seed}").randrange(self._find(task))


def _held_out(goal: int) -> bool:
    return goal % 3 == 0


def _move(action: str) -> int | None:
    return _MOVES.get(action.strip().lower())


def _first(number: int, goal: int) -> Observation:
    return Observation(text=f"The number is {number}; the goal is {goal}.", valid_actions=tuple(_MOVES))


def _toward(goal: int, number: int) -> str | None:
    if number == goal:
        return None
    if number > goal:
        return "take 1"
    return "add 5" if goal - number >= 5 else "add 1"
