"""Task, Turn, Segment, Episode, Group, Ending: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ...envs.protocol import YesNoQuestion
from ..agents.messages import Message

__all__ = [
    "Ending",
    "Episode",
    "Group",
    "HarnessReport",
    "PendingVerdict",
    "Purpose",
    "SeatReport",
    "Segment",
    "Task",
    "Turn",
]


class Ending(StrEnum):
    """Reason why an episode ended."""

    DONE = "done"
    """The environment ended it."""
    HORIZON = "horizon"
    """No turn was left."""
    BUDGET = "budget"
    """No token was left for another turn."""
    INVALID = "invalid"
    """Too many replies without an action."""
    UNCONTESTED = "uncontested"
    """The environment ended it before the agent's first turn, by what other seats did."""
    ENV_FAULT = "env_fault"
    """The environment failed, not the agent; never trained on."""
    UNSCORED = "unscored"
    """The judge returned no score; never trained on."""
    CANCELLED = "cancelled"
    """The run cancelled it; never trained on."""

    @property
    def truncated(self) -> bool:
        return self in (Ending.HORIZON, Ending.BUDGET)

    @property
    def trainable(self) -> bool:
        return self not in (Ending.ENV_FAULT, Ending.UNSCORED, Ending.CANCELLED)


class Purpose(StrEnum):
    """Purpose of a reply."""

    ACT = "act"
    """An action; only these count towards the horizon."""
    PLAN = "plan"
    LESSON = "lesson"
    """A lesson for the next attempt."""
    SUMMARY = "summary"
    """A summary of what is no longer in view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One attempt to make: environment, task, and the environment's seed."""

    environment: str
    id: str
    seed: int
    """Seed of the environment; equal for all episodes of a group."""
    difficulty: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One reply of the agent and the observation after it. Of several actions in one reply each is a turn, and the
    first of them holds the tokens."""

    segment: int
    """Index of the segment that holds its tokens."""
    start: int
    end: int
    """The sampled tokens are `segment.ids[start:end]`."""
    reply: str
    action: str | None
    """None where the reply held no action, or had another purpose."""
    observation: str
    reward: float
    """From the environment, or from a judge of turns, for this turn alone."""
    state: str = ""
    """Name of the state that the turn was taken from: equal states, equal names. Where the environment names none, it
    is a hash of the last observation."""
    purpose: Purpose = Purpose.ACT
    role: str = "user"
    """Role of the observation."""
    sampling_s: float = field(default=0.0, compare=False)
    """Seconds until the reply was there, the wait for the engine included."""
    env_s: float = field(default=0.0, compare=False)
    """Seconds until the environment had answered."""
    picture: bytes | None = field(default=None, compare=False, repr=False)
    """What the environment shows people with the observation."""

    @property
    def invalid(self) -> bool:
        return self.purpose is Purpose.ACT and self.action is None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segment:
    """A token sequence as the model saw it, and which of its tokens the model sampled."""

    ids: NDArray[np.int32]
    sampled: NDArray[np.bool_]
    """True where the model sampled the token; only these are trained on."""
    logprobs: NDArray[np.float32]
    """Under the distribution that was sampled from; 0 for other tokens."""
    versions: NDArray[np.int32]
    """Version of the weights that sampled the token; -1 for other tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessReport:
    """What is known about an episode that a harness played."""

    requests: int
    """Answered by the policy."""
    prompt_tokens: int
    """Of all requests, each counted whole."""
    held_tokens: int
    """Of these, tokens that the episode's conversations held already."""
    completion_tokens: int
    origins: tuple[str, ...] = ()
    """Why each segment begins: `start`, `branch` or `rewrite`."""
    parents: tuple[int, ...] = ()
    """Index of the segment that each goes on from; -1 for none."""
    log: str = ""
    """Standard error of its process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatReport:
    """What is known about a seat that a model of the run played against or with the agent."""

    name: str
    model: str
    """`policy`, or `earlier` for an earlier checkpoint."""
    version: int
    """Of the newest weights that it was played with."""
    tokens: int
    """It sampled; they are in no segment."""
    actions: tuple[str, ...]
    """Read from its replies; empty for one without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingVerdict:
    """Questions that an environment leaves to a judge, and what follows where the answer to all of them is yes."""

    questions: tuple[YesNoQuestion, ...]
    required: bool
    """Without an answer the episode has no score."""
    reward: float
    """Of the last step."""
    turn: int
    """Index of the turn that took it."""
    score: float
    success: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episode:
    """One attempt at a task."""

    task: Task
    index: int
    """Index in its group."""
    segments: tuple[Segment, ...]
    turns: tuple[Turn, ...]
    ending: Ending
    horizon: int
    score: float
    """From the environment, or from a judge; of several attempts, that of the last."""
    success: bool
    """By the environment's score alone, and by a judge where the environment asks one."""
    fault: str = ""
    """Cause, under `env_fault` and `unscored`."""
    opening: tuple[Message, ...] = ()
    """Messages before the first reply."""
    prompt: str = ""
    """Version of what stands before its task; empty where another's agent wrote it."""
    faults: tuple[str, ...] = ()
    """Kinds of all faults, by attempt; a retry may have recovered."""
    retries: int = 0
    harness: HarnessReport | None = None
    """None where our own agent played."""
    seats: tuple[SeatReport, ...] = ()
    """Other seats in the episode that models of the run played."""
    seconds: float = field(default=0.0, compare=False)
    picture: bytes | None = field(default=None, repr=False)
    """What the environment shows people with its first observation."""
    judge_keys: tuple[str, ...] = ()
    """Keys of the judge's answers that scored it, in the order of its questions."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """What the environment measured, by the last step's `info`."""
    pending: PendingVerdict | None = None
    """What its score and success wait for."""

    @property
    def sampled_tokens(self) -> int:
        return int(sum(int(segment.sampled.sum()) for segment in self.segments))

    @property
    def total_tokens(self) -> int:
        return sum(len(segment.ids) for segment in self.segments)

    @property
    def num_turns(self) -> int:
        """Turns with an action, or an invalid one."""
        return sum(turn.purpose is Purpose.ACT for turn in self.turns)

    @property
    def invalid_turns(self) -> int:
        return sum(turn.invalid for turn in self.turns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Episodes of one task."""

    task: Task
    episodes: tuple[Episode, ...]
    greedy: Episode | None = None
    """Played at temperature 0 as the baseline of the others; never trained on."""
