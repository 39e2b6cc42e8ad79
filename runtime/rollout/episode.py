"""What is said, sampled and learnt from: Task, Turn, Segment, Episode, Group, Ending. Frozen values.

An episode is what happened, token by token. A segment is one token sequence that the model saw: one for the whole
episode while the agent sees all of its past, several where its memory was cut or summarised in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ..agents.messages import Message

__all__ = ["Ending", "Episode", "Group", "Purpose", "Segment", "Task", "Turn"]


class Ending(StrEnum):
    """Why an episode ended."""

    DONE = "done"
    """The environment said so."""
    HORIZON = "horizon"
    """No turn was left."""
    BUDGET = "budget"
    """No token was left for another turn."""
    INVALID = "invalid"
    """Too many replies without an action."""
    ENV_FAULT = "env_fault"
    """The environment failed, not the agent; never learnt from."""
    UNSCORED = "unscored"
    """The judge did not say what it is worth; never learnt from."""
    CANCELLED = "cancelled"
    """The run no longer wanted it; never learnt from."""

    @property
    def truncated(self) -> bool:
        return self in (Ending.HORIZON, Ending.BUDGET)

    @property
    def trainable(self) -> bool:
        return self not in (Ending.ENV_FAULT, Ending.UNSCORED, Ending.CANCELLED)


class Purpose(StrEnum):
    """What a reply is for."""

    ACT = "act"
    """To act; only these are turns that the horizon allows."""
    PLAN = "plan"
    LESSON = "lesson"
    """To do better in the next attempt."""
    SUMMARY = "summary"
    """To remember what is no longer in view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One attempt to be made: what, where, and the seed of everything drawn in it."""

    environment: str
    id: str
    seed: int
    """Of the environment; equal for all episodes of a group."""
    difficulty: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One reply of the agent and what it was told then. Of several actions in one reply each is a turn, and the first
    of them holds the tokens."""

    segment: int
    """Index of the segment that holds its tokens."""
    start: int
    end: int
    """The sampled tokens are `segment.ids[start:end]`."""
    reply: str
    action: str | None
    """None where the reply held no action, or was not for one."""
    observation: str
    reward: float
    """From the environment, or from a judge of turns, for this turn alone."""
    state: str = ""
    """Names the state that the turn was taken from: equal states, equal names. Where the environment has no names for
    them, equal is what it showed last."""
    purpose: Purpose = Purpose.ACT
    role: str = "user"
    """Who told the observation."""

    @property
    def invalid(self) -> bool:
        return self.purpose is Purpose.ACT and self.action is None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segment:
    """A token sequence as the model saw it, and which of its tokens the model itself sampled."""

    ids: NDArray[np.int32]
    sampled: NDArray[np.bool_]
    """True where the token was drawn by the model; only these are learnt."""
    logprobs: NDArray[np.float32]
    """Of sampled tokens, under the distribution they were drawn from; 0 elsewhere."""
    versions: NDArray[np.int32]
    """Of the weights that drew the token; -1 elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episode:
    """One attempt at a task."""

    task: Task
    index: int
    """Its place in its group."""
    segments: tuple[Segment, ...]
    turns: tuple[Turn, ...]
    ending: Ending
    horizon: int
    score: float
    """From the environment, or from a judge; of several attempts, that of the last."""
    success: bool
    """By the environment's score alone."""
    fault: str = ""
    """What failed, under `env_fault` and `unscored`."""
    opening: tuple[Message, ...] = ()
    """What was said before the first reply."""
    faults: tuple[str, ...] = ()
    """Kinds of all that failed on the way, by attempt; a retry may have mended it."""
    retries: int = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def sampled_tokens(self) -> int:
        return int(sum(int(segment.sampled.sum()) for segment in self.segments))

    @property
    def total_tokens(self) -> int:
        return sum(len(segment.ids) for segment in self.segments)

    @property
    def num_turns(self) -> int:
        """Those in which it acted, or tried to."""
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
    """Played at temperature 0, for the others to be compared with; never learnt from."""
