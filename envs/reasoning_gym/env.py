"""reasoning-gym: problems made by a generator, each answered once and scored by the generator's own verifier."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from random import Random

from ..errors import EpisodeOver, UnknownTask
from ..options import read_options
from ..protocol import Env, EnvSpec, Json, Observation, Status, Step, parse_numbered
from .generators import FIRST_SEED, Generator, ReasoningProblem
from .options import ReasoningGymOptions

__all__ = ["SPEC", "ReasoningGym", "create"]

SPEC = EnvSpec(
    name="reasoning_gym",
    version="1",
    summary="generated reasoning problems with checked answers",
    splits=tuple(FIRST_SEED),
    prompt="You are given a problem. Give its answer, once, after the word answer:\nanswer 42",
    max_turns=1,
)

_VERB = "answer"
_NO_ANSWER = f"That is no answer: write {_VERB}, and after it your answer."
_TRIES = 5
"""Actions in one episode, where none of them is an answer."""
_LONGEST = 20_000
_NUMBER = re.compile(r"[-+]?[0-9][0-9,]{0,99}(?:\.[0-9]{1,99})?")


def create(options: Mapping[str, Json]) -> ReasoningGym:
    return ReasoningGym(options)


class ReasoningGym(Env):
    spec = SPEC

    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_options(ReasoningGymOptions, options)
        self._generators = {split: Generator(self._options, seed) for split, seed in FIRST_SEED.items()}
        self._problem: ReasoningProblem | None = None
        self._left = 0

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        self.check_split(split)
        return tuple(f"{split}-{number}" for number in range(self._options.size))

    def _make_problem(self, task: str) -> ReasoningProblem:
        split, number = parse_numbered(task) or ("", 0)
        if split not in FIRST_SEED or number >= self._options.size:
            raise UnknownTask(f"reasoning_gym has no task '{task[:60]}'")
        return self._generators[split].problem(number)

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        """The seed changes nothing."""
        self._problem, self._left = self._make_problem(task), _TRIES
        return Observation(text=self._problem.question)

    def step(self, action: str) -> Step:
        problem = self._problem
        if problem is None:
            raise EpisodeOver("reasoning_gym has no episode under way: reset it first")
        self._left -= 1
        answer = _answer(action, problem.answer)
        if answer is None:
            self._problem = problem if self._left else None
            return Step(observation=Observation(text=_NO_ANSWER), truncated=not self._left, status=Status.INVALID)
        self._problem = None
        return Step(observation=Observation(text="The answer is given."), reward=problem.score(answer), terminated=True)

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        """The generator's own answer, where its verifier accepts it."""
        problem = self._make_problem(task)
        right = problem.answer is not None and problem.score(problem.answer) == 1.0
        return (f"{_VERB} {problem.answer}",) if right else None

    def noise_action(self, rng: Random) -> str | None:
        """The answer of another problem."""
        other = self._generators["train"].problem(rng.randrange(self._options.size))
        return f"{_VERB} {other.answer}"

    def corpus(self) -> Iterator[str]:
        """The prompt, and the first problems of training with their answers."""
        yield from (self.spec.prompt, _NO_ANSWER, "The answer is given.")
        for number in range(min(self._options.size, 500)):
            problem = self._generators["train"].problem(number)
            yield f"{problem.question}\n{problem.answer}"


def _answer(action: str, right: str | None) -> str | None:
    """The text after the verb, or None; where an agent can write only one line, `\\n` begins another.

    Where the right answer is a number, a bare number is an answer too: no other text can be told from nonsense.
    """
    if right is not None and all(_NUMBER.fullmatch(each.strip()) for each in (right, action)):
        return action.strip()
    verb, _, rest = action.strip().partition(" ")
    answer = rest.strip()
    if verb.lower() != _VERB or not answer or len(answer) > _LONGEST:
        return None
    return answer if "\n" in answer else answer.replace("\\n", "\n")
