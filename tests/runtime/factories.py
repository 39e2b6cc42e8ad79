"""Episodes by hand: turns, tokens and all that goes with them, with what a test does not look at filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from agym.runtime.learning.reward import Scored
from agym.runtime.rollout.episode import Ending, Episode, Segment, Task, Turn

TASK = Task(environment="echo", id="t", seed=0)


def make_turn(start: int, end: int, **rest: Any) -> Turn:
    """One with the action `go` that was told nothing and earned nothing."""
    return Turn(
        **{"segment": 0, "reply": "", "action": "go", "observation": "", "reward": 0.0, **rest}, start=start, end=end
    )


def make_segment(
    sampled: Sequence[bool] | Any, ids: Sequence[int] | Any = (), logprobs: Sequence[float] | Any = ()
) -> Segment:
    """Tokens of which `sampled` says who drew them; zeros where nothing else is given."""
    zeros = np.zeros(len(sampled))
    return Segment(
        ids=np.asarray(ids if len(ids) else zeros, np.int32),
        sampled=np.asarray(sampled, np.bool_),
        logprobs=np.asarray(logprobs if len(logprobs) else zeros, np.float32),
        versions=zeros.astype(np.int32),
    )


def make_episode(segments: Sequence[Segment], turns: Sequence[Turn], **rest: Any) -> Episode:
    """The first of its group, ended by the environment and of no success."""
    facts = {"task": TASK, "index": 0, "ending": Ending.DONE, "horizon": 8, "score": 0.0, "success": False, **rest}
    return Episode(segments=tuple(segments), turns=tuple(turns), **facts)


def make_scored(episode: Episode, outcome: float = 0.0) -> Scored:
    """An episode whose outcome is all that it earned."""
    return Scored(episode=episode, outcome=outcome, turn_rewards=(0.0,) * len(episode.turns))
