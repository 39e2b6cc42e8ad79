"""Scopes: the names that expressions may use, by the place where they stand, with meaning, type and limits.

The runtime supplies exactly these. A name that is not `sure` may be unknown at times; a `metric` has a history, so that
windows such as `mean(success, 10)` can be taken of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from math import inf

from ..frozen import frozen

__all__ = ["CONSTANT", "SCOPES", "ExprType", "Fact", "Scope"]


class ExprType(StrEnum):
    """What an expression gives; the values are its names in messages."""

    NUMBER = "number"
    INTEGER = "whole number"
    BOOLEAN = "true or false"
    TEXT = "text"


@frozen
class Fact:
    """A name and what is known about it before a run."""

    type: ExprType
    doc: str
    low: float = -inf
    high: float = inf
    sure: bool = True
    """Always known while an expression of its scope is evaluated."""
    metric: bool = False
    """Recorded at every step; has windows."""
    values: tuple[str, ...] = ()
    """All that a text can be; empty where the recipe decides."""


@frozen
class Scope:
    """The names of one kind of place."""

    place: str
    """What that place is called in an error: "no such name in {place}"."""
    keys: tuple[str, ...]
    """The keys of a recipe that are read with it, or the first of them."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    in_recipes: bool = True
    """Whether a key of a recipe is read with it."""
    bare_metrics: bool = False
    """Whether a metric's own name is its newest value; elsewhere it must be asked for: `last(success)`."""


def _number(doc: str, low: float = -inf, high: float = inf, *, sure: bool = True) -> Fact:
    return Fact(type=ExprType.NUMBER, doc=doc, low=low, high=high, sure=sure)


def _count(doc: str, low: int = 0) -> Fact:
    return Fact(type=ExprType.INTEGER, doc=doc, low=low)


def _yes(doc: str) -> Fact:
    return Fact(type=ExprType.BOOLEAN, doc=doc)


def _text(doc: str, *values: str) -> Fact:
    return Fact(type=ExprType.TEXT, doc=doc, values=values)


def _metric(doc: str, low: float = -inf, high: float = inf) -> Fact:
    return Fact(type=ExprType.NUMBER, doc=doc, low=low, high=high, sure=False, metric=True)


_CLOCK = {
    "step": _count("steps finished in this stage; 0 during the first"),
    "total_step": _count("steps finished in the whole run"),
    "stage": _text("name of this stage"),
    "stage_index": _count("stages before this one; 0 in the first"),
}

_METRICS = {
    "success": _metric("share of the step's episodes that succeeded", 0, 1),
    "reward": _metric("mean reward of the step's episodes"),
    "turns": _metric("mean turns per episode", 0),
    "length": _metric("mean sampled tokens per episode", 0),
    "kl": _metric("mean KL from the reference, per token"),
    "entropy": _metric("mean entropy per sampled token", 0),
    "loss": _metric("loss of the step's last update"),
    "grad_norm": _metric("norm of the gradient before it is scaled down", 0),
    "invalid_rate": _metric("share of replies without an action", 0, 1),
    "truncated_rate": _metric("share of episodes that ran out of turns or tokens", 0, 1),
    "zero_std_frac": _metric("share of groups whose episodes all have the same reward", 0, 1),
    "eval_success": _metric("share of the last evaluation's episodes that succeeded", 0, 1),
}

_EPISODE = {
    "score": _number("score of the episode, from the environment or the judge"),
    "success": _yes("whether the environment's own score reached its `success_at`"),
    "turns": _count("turns taken"),
    "sampled_tokens": _count("tokens that the model sampled"),
    "total_tokens": _count("all tokens: prompt, actions and observations", 1),
    "invalid_turns": _count("replies without an action"),
    "horizon": _count("turns allowed", 1),
    "done": _yes("whether the environment ended the episode"),
    "truncated": _yes("whether it ran out of turns or tokens"),
    "ending": _text(
        "why it ended", "done", "horizon", "budget", "invalid", "uncontested", "env_fault", "unscored", "cancelled"
    ),
    "environment": _text("name of the environment in the recipe"),
    "difficulty": _number("difficulty of the task, as given by the environment; unknown if it gives none", sure=False),
}

_TURN = {
    "turn_reward": _number("reward for this turn, from the environment or the turn judge"),
    "turn_index": _count("turns before this one; 0 for the first"),
    "turn_invalid": _yes("whether this reply had no action"),
    "turn_tokens": _count("tokens sampled in this turn"),
}

_RECORDED = {
    "step": _count("steps finished in the whole run"),
    "total_step": _count("steps finished in the whole run"),
    "stage": _text("name of its stage"),
    "purpose": _text("what it was for", "train", "eval", "demonstration"),
    "mode": _text("how its tokens were chosen; unknown of demonstrations", "sampled", "greedy"),
    "task": _text("the environment's name of its task"),
    "index": _count("its place in its group"),
    "seconds": _number("how long it took", 0),
    "reward": _number("reward as trained on; unknown where nothing was trained"),
    "advantage": _number("mean advantage of its sampled tokens; unknown where none was computed"),
    "kept": _yes("whether it was trained on; unknown where that is not recorded"),
}

_GROUP = {
    "mean": _number("mean reward of the group"),
    "std": _number("standard deviation of the reward in the group", 0),
    "min": _number("lowest reward"),
    "max": _number("highest reward"),
    "size": _count("episodes in the group", 1),
    "solved": _number("share of its episodes that succeeded", 0, 1),
    "environment": _text("name of the environment in the recipe"),
}

SCOPES: Mapping[str, Scope] = {
    "schedule": Scope(
        place="a number that changes with the run",
        keys=("turns", "lr", "weight", "temperature", "kl.coef"),
        facts={**_CLOCK, **_METRICS},
    ),
    "until": Scope(
        place="an `until`",
        keys=("until",),
        facts={
            **_CLOCK,
            **_METRICS,
            "episodes": _count("episodes finished in this stage"),
            "sampled_tokens": _count("tokens sampled in this stage"),
        },
        bare_metrics=True,
    ),
    "episode": Scope(
        place="an expression about one episode",
        keys=("reward.episode", "filter.episodes", "data.keep", "evolve.keep"),
        facts={**_EPISODE, **_CLOCK},
    ),
    "turn": Scope(place="an expression about one turn", keys=("reward.turn",), facts={**_TURN, **_EPISODE, **_CLOCK}),
    "group": Scope(place="an expression about one group", keys=("filter.groups",), facts={**_GROUP, **_CLOCK}),
    "recorded": Scope(
        place="an expression about recorded episodes",
        keys=("--where",),
        facts={**_EPISODE, **_RECORDED},
        in_recipes=False,
    ),
}

CONSTANT = Scope(place="a constant value", keys=())
"""No names at all."""
