"""A Plan: what the machine runs. Frozen and serialisable; made by `lower.py`, read by `runtime`.

A plan holds complete settings and refers to nothing outside itself but model folders, data files and environments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from ..frozen import frozen
from .algorithm import Kind
from .recipe import Checkpoint, Eval, Guards, Hardware, Layout, Model, ModelShape, Rollout, Sink, Stage

__all__ = [
    "VERSION",
    "Budget",
    "MemoryItem",
    "MemoryUse",
    "Op",
    "OpKind",
    "Phase",
    "Placement",
    "Plan",
    "PlanStage",
    "Port",
    "PortType",
    "Role",
    "StageBudget",
    "Wire",
    "Worker",
    "peaks",
]

VERSION = 1
"""Of the plan's own format."""


class PortType(StrEnum):
    """What travels between ops."""

    TASKS = "tasks"
    EPISODES = "episodes"
    SCORED = "scored"
    BATCH = "batch"
    PAIRS = "pairs"
    WEIGHTS = "weights"
    LOGPROBS = "logprobs"
    VALUES = "values"
    METRICS = "metrics"
    FOLDER = "folder"


class OpKind(StrEnum):
    """What is done."""

    TASKS = "tasks"
    DATA = "data"
    ROLLOUT = "rollout"
    REWARD = "reward"
    ADVANTAGE = "advantage"
    REFERENCE = "reference"
    VALUES = "values"
    PAIRS = "pairs"
    UPDATE = "update"
    CRITIC = "critic"
    SYNC = "sync"
    EVAL = "eval"
    SAVE = "save"


class Role(StrEnum):
    """What a worker is for."""

    ROLLOUT = "rollout"
    LEARNER = "learner"
    CRITIC = "critic"
    REFERENCE = "reference"
    ENVIRONMENT = "environment"


@frozen
class Port:
    """A named output of an op."""

    name: str
    type: PortType


@frozen
class Wire:
    """An input of an op: the output of another, in this step or, if `previous`, in the one before."""

    op: str
    port: str
    type: PortType
    previous: bool = False


@frozen
class Op:
    """One thing done in each step of a stage."""

    id: str
    kind: OpKind
    role: Role | None
    """The workers that do it; None for the engine itself."""
    inputs: tuple[Wire, ...] = ()
    outputs: tuple[Port, ...] = ()
    every: int = 1
    """Steps between two times it is done."""


@frozen
class Worker:
    """One process or actor."""

    id: str
    role: Role
    rank: int
    node: int
    gpus: tuple[int, ...]
    """Indices on its node; empty on a CPU."""


@frozen
class Placement:
    """Which worker runs where."""

    launcher: str
    workers: tuple[Worker, ...]


class Phase(StrEnum):
    """When a part of a card's memory is in use; only one phase besides `resident` at a time."""

    RESIDENT = "resident"
    SAMPLING = "sampling"
    VALUING = "valuing"
    LEARNING = "learning"


@frozen
class MemoryItem:
    """One part of a worker's memory."""

    what: str
    bytes: int
    phase: Phase = Phase.RESIDENT


@frozen
class MemoryUse:
    """Memory of one role on each of its GPUs, or, with `host`, in the memory of each machine."""

    role: Role
    items: tuple[MemoryItem, ...]
    host: bool = False


@frozen
class StageBudget:
    """What a step of a stage costs, at its largest horizon."""

    episodes_per_step: int
    """Episodes of training tasks; 0 where none is played. Resampled groups come on top."""
    max_turns: int
    """0 where nothing is played."""
    max_sampled_tokens_per_step: int
    max_trained_tokens_per_step: int
    """Tokens that pass through the learner, observations and both sides of a pair counted."""
    updates_per_step: int
    max_steps: int | None
    """From `until`; None where no step count bounds it."""
    horizon: tuple[tuple[int, int], ...]
    """(step, turns): the horizon from each step on, as far as it depends on steps alone."""


@frozen
class Budget:
    """What the run takes."""

    parameters: int | None
    """None where the model's sizes are not known here."""
    trainable_parameters: int | None
    capacity_bytes: int | None
    """Memory of one card; None on a CPU or an unknown card."""
    memory: tuple[MemoryUse, ...]


@frozen
class PlanStage:
    """A stage: its settings, whole, and what is done in each step."""

    index: int
    kind: Kind
    settings: Stage
    ops: tuple[Op, ...]
    budget: StageBudget


@frozen
class Plan:
    """A run, whole."""

    version: int
    recipe_sha256: str
    """Of the resolved recipe."""
    name: str
    description: str
    seed: int
    output: str
    tags: tuple[str, ...]
    choices: Mapping[str, str]
    """What the matrix chose for this run, by key."""
    model: Model
    shape: ModelShape | None
    stages: tuple[PlanStage, ...]
    rollout: Rollout
    eval: Eval | None
    checkpoint: Checkpoint
    hardware: Hardware
    guards: Guards
    logging: tuple[Sink, ...]
    placement: Placement
    budget: Budget


# --- peaks ---------------------------------------------------------------------------------------------------------


def peaks(uses: Iterable[MemoryUse], layout: Layout) -> Mapping[Role, int]:
    """The most that a card holds at once: one figure for all roles where they share cards, named after the learner.

    Everything resident counts at all times; of the phases only the largest does.
    """
    cards: dict[Role, dict[Phase, int]] = {}
    for use in uses:
        if use.host:
            continue
        card = cards.setdefault(_card_of(use.role, layout), dict.fromkeys(Phase, 0))
        for item in use.items:
            card[item.phase] += item.bytes
    return {role: _peak(card) for role, card in cards.items()}


def _card_of(role: Role, layout: Layout) -> Role:
    return Role.ROLLOUT if role is Role.ROLLOUT and layout is Layout.SPLIT else Role.LEARNER


def _peak(card: Mapping[Phase, int]) -> int:
    return card[Phase.RESIDENT] + max(size for phase, size in card.items() if phase is not Phase.RESIDENT)
