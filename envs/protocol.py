"""The contract between an environment and its player.

`Env` is what an author writes, plain and synchronous; `EnvClient` and `Session` are what a player sees, the same
whether the environment lives in this process or behind HTTP.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Protocol, TypeAlias

from .errors import UnknownSplit

__all__ = [
    "LARGEST_REWARD",
    "START_S",
    "TOOL_NAME",
    "Deadlines",
    "Env",
    "EnvClient",
    "EnvFactory",
    "EnvSpec",
    "Json",
    "JudgeRequest",
    "Observation",
    "Reached",
    "Runs",
    "Score",
    "Seat",
    "SeatModel",
    "Session",
    "Status",
    "Step",
    "TaskInfo",
    "ToolSchema",
    "YesNoQuestion",
    "parse_numbered",
    "score_of",
    "split_words",
]

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


class Score(StrEnum):
    """How an episode's score follows from the rewards of its steps."""

    LAST = "last"
    """Each reward is the score so far."""
    MAX = "max"
    """The best reward counts."""
    SUM = "sum"
    """Rewards add up."""


_FOLDS: Mapping[Score, Callable[[Sequence[float]], float]] = {
    Score.LAST: lambda rewards: rewards[-1],
    Score.MAX: max,
    Score.SUM: sum,
}


def score_of(score: Score, rewards: Sequence[float]) -> float:
    """The score of an episode; one without a step has earned nothing."""
    return float(_FOLDS[score](rewards)) if rewards else 0.0


class Runs(StrEnum):
    """Where a call into the environment may run."""

    INLINE = "inline"
    """In the event loop's thread: every call returns within microseconds."""
    POOL = "pool"
    """In any thread, one call at a time."""
    THREAD = "thread"
    """In one thread that stays the same for the life of the instance."""


class Status(StrEnum):
    """What the environment made of an action."""

    OK = "ok"
    REFUSED = "refused"
    """Understood, but not possible now; the observation says why."""
    INVALID = "invalid"
    """Not understood; the observation says what is."""


class SeatModel(StrEnum):
    """Which model of the run plays a seat that is not the agent's."""

    POLICY = "policy"
    """The weights that play the agent, as they are now."""
    EARLIER = "earlier"
    """Those of an earlier checkpoint of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Another player in an episode, played by a model of the run."""

    name: str
    """Its turns are one conversation."""
    model: SeatModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the agent, or the player of another seat, is shown."""

    text: str
    valid_actions: tuple[str, ...] | None = None
    """Every action possible now, where the environment can list them."""
    picture: bytes | None = field(default=None, repr=False, compare=False)
    """A PNG of what is seen, for people who watch; agents are given the text alone."""
    seat: Seat | None = None
    """Whose turn it is, where it is not the agent's: the next action is that player's, and the agent is not shown
    this. Only an environment whose spec names `models` has such turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The answer to one action."""

    observation: Observation
    reward: float = 0.0
    terminated: bool = False
    """The task has come to its end, won or lost."""
    truncated: bool = False
    """The environment stopped the episode for a reason outside the task, such as its own limit of steps."""
    status: Status = Status.OK
    info: Mapping[str, Json] = field(default_factory=dict)
    """Further facts. `state`, if there, names the episode's current state: equal states of a task have equal names.
    `metrics`, if in an episode's last step, has numbers by name, whose means are metrics of the run.
    `judge`, in the last step, is a `JudgeRequest` as `wire.judge_to` writes it."""

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class YesNoQuestion:
    """A question about an episode that no program can answer."""

    text: str
    """The question, in the environment's own words: nothing of the agent's."""
    evidence: Mapping[str, str]
    """What it is about, by names such as `answer`; it may be the agent's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """What an environment leaves to the player's judge, which is asked once the episode has ended."""

    questions: tuple[YesNoQuestion, ...]
    reward: float
    """The step's reward where the answer to all of them is yes; else it stays as it is."""
    required: bool = True
    """Whether the reward says nothing without a judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """A task as a player sees it before playing."""

    id: str
    difficulty: str | None = None
    """Group by which results are broken down, such as `depth3`."""
    trivial: bool = False
    """Whether it is, on purpose, solved by doing nothing."""
    judged: bool = False
    """Whether only a judge can decide its success."""


def split_words(command: str) -> list[str]:
    """Split a command into its words, without articles and a full stop at the end."""
    return [word for word in command.strip().removesuffix(".").split() if word not in ("a", "an", "the")]


def parse_numbered(task: str, separator: str = "-") -> tuple[str, int] | None:
    """Split an id such as `seed-17` into its name and number; None for one in any other form."""
    name, found, digits = task.rpartition(separator)
    if not (found and digits.isascii() and digits.isdigit() and len(digits) < 10 and digits == str(int(digits))):
        return None
    return name, int(digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Another task that an episode has solved along the way."""

    task: str
    actions: int
    """How many of the episode's actions had been given by then."""
    first: Observation
    """What the episode would have shown at its start, had this been its task."""


LARGEST_REWARD = 1e12
"""Beyond it a reward is a fault of the environment."""


TOOL_NAME = re.compile(r"[A-Za-z0-9_./-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """A tool whose calls an environment takes as actions."""

    name: str
    description: str
    parameters: Mapping[str, Json]
    """JSON Schema of an object with the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSpec:
    """What is known about an environment before any episode."""

    name: str
    version: str
    """Changes whenever the same task and seed no longer give the same episode."""
    summary: str
    splits: tuple[str, ...]
    score: Score = Score.LAST
    score_range: tuple[float, float] = (0.0, 1.0)
    """Bounds of an episode's score; a score outside them is a fault of the environment."""
    prompt: str = ""
    """What the agent must know to act: the commands and their form."""
    max_turns: int | None = None
    """A horizon within which every task can be solved."""
    runs: Runs = Runs.POOL
    tools: tuple[ToolSchema, ...] = ()
    """Tools for the model's own chat template. An environment that has some takes calls as actions too, each one JSON
    object: `{"name": ..., "arguments": {...}}`."""
    tool_prompt: str = ""
    """What replaces `prompt` where the agent gets the tools from its chat template."""
    free_text: bool = False
    """Whether every text is a turn, as in a conversation: none is malformed, and one may end the episode."""
    models: tuple[SeatModel, ...] = ()
    """Models that play other seats; the player must have them."""


START_S = 300.0
"""How late an episode may begin where many begin at once, each with a process to start: in a server, in a check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long a player waits, in seconds, retries included."""

    open_s: float = 60.0
    step_s: float = 30.0
    close_s: float = 5.0


class Env(ABC):
    """One environment, one episode at a time. Making one is cheap: what takes long waits for the first reset.

    Ids are stable strings; the same task and seed give the same episode on every machine. An action that makes no sense
    is answered by an observation with `Status.INVALID`, never by an exception: exceptions are for callers' mistakes
    (`UnknownTask`, `EpisodeOver`) and for the environment's own trouble, which players see as an `EnvFault`.
    """

    spec: EnvSpec

    @abstractmethod
    def tasks(self, split: str) -> tuple[str, ...]:
        """Ids of a split, always in the same order."""

    def check_split(self, split: str) -> None:
        """Raise `UnknownSplit` for one that the spec does not list."""
        if split not in self.spec.splits:
            raise UnknownSplit(f"{self.spec.name} has no split '{split[:40]}', only {', '.join(self.spec.splits)}")

    def describe(self) -> EnvSpec:
        """The spec, including what takes long to find out, such as a server's tools; asked for once."""
        return self.spec

    @abstractmethod
    def reset(self, task: str, seed: int) -> Observation:
        """Begin an episode; one under way is abandoned."""

    @abstractmethod
    def step(self, action: str) -> Step:
        """Take an action; raise `EpisodeOver` where no episode is under way."""

    def end(self) -> None:  # noqa: B027 - most environments hold nothing
        """End the episode: release what belongs to it, but keep what the next one needs too."""

    def close(self) -> None:  # noqa: B027
        """Release everything; may be called more than once."""

    def difficulty(self, task: str) -> str | None:
        """The group that this task's results are broken down by."""
        return None

    def trivial(self, task: str) -> bool:
        """Whether this task is, on purpose, solved by doing nothing or by an empty answer."""
        return False

    def judged(self, task: str) -> bool:
        """Whether only a judge can decide this task's success: its last step asks one, see `JudgeRequest`."""
        return False

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        """Actions that solve this episode from its start, if a solution is known. May end the episode under way."""
        return None

    def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None:
        """The other training tasks that these actions have solved, each once; None if that cannot be known. May end the
        episode under way. A held-out task is never reported, and an episode of one reports none."""
        return None

    def advice(self) -> str | None:
        """What an expert would do now, wherever the episode stands; None if that cannot be known."""
        return None

    def noise_action(self, rng: Random) -> str | None:
        """A well-formed action that need not be a good one."""
        return None

    def corpus(self) -> Iterable[str]:
        """Texts that together contain every word the environment says or understands, to make a tokenizer from."""
        return ()


EnvFactory: TypeAlias = Callable[[], Env]
"""Makes a fresh instance; instances share nothing that changes."""


class Session(Protocol):
    """One episode under way."""

    @property
    def first(self) -> Observation:
        """Observation of the reset."""

    async def step(self, action: str) -> Step: ...

    async def advice(self) -> str | None: ...

    async def noise_action(self, seed: int) -> str | None: ...

    async def close(self) -> None:
        """Give the environment back; never raises, and may be called more than once."""


class EnvClient(Protocol):
    """An environment, local or remote."""

    async def spec(self) -> EnvSpec: ...

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]: ...

    async def open(self, task: str, seed: int) -> Session:
        """Begin an episode."""

    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None: ...

    async def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None: ...

    async def corpus(self) -> tuple[str, ...]: ...

    async def close(self) -> None: ...
