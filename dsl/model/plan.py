"""The Plan: what the machine runs. Frozen and serialisable; `lower.py` makes it, `runtime` executes it.

A plan holds complete settings and refers only to model folders, data files and environments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from ..frozen import frozen
from .algorithm import Kind
from .recipe import Checkpoint, Eval, Guards, Hardware, Layout, Model, ModelShape, Rollout, Sink, Stage

VERSION = 1
"""Of the plan's own format."""


class PortType(StrEnum):
    """What travels between ops; an op's ports are named after it."""

    TASKS = "tasks"
    EPISODES = "episodes"
    SCORED = "scored"
    """Episodes with their rewards, group by group."""
    VALUES = "values"
    BATCH = "batch"
    """Token sequences with an advantage on every token."""
    DEMONSTRATIONS = "demonstrations"
    """Episodes to imitate."""
    CANDIDATES = "candidates"
    """Turns that were taken, and what else might have been said there."""
    PAIRS = "pairs"
    REFERENCE_LOGPROBS = "reference_logprobs"
    OLD_LOGPROBS = "old_logprobs"
    """The learner's own log-probs before its first update."""
    WEIGHTS = "weights"
    METRICS = "metrics"
    FOLDER = "folder"


class OpKind(StrEnum):
    """One function of the runtime each: `runtime/steps/ops.py`."""

    SYNC = "sync"
    TASKS = "tasks"
    ROLLOUT = "rollout"
    JUDGE = "judge"
    RESAMPLE = "resample"
    REWARD = "reward"
    REFERENCE = "reference"
    VALUES = "values"
    ADVANTAGE = "advantage"
    OLD_LOGPROBS = "old_logprobs"
    UPDATE = "update"
    CRITIC = "critic"
    DEMONSTRATIONS = "demonstrations"
    KEEP = "keep"
    RETRAINING_DATA = "retraining_data"
    RESET = "reset"
    SFT = "sft"
    PAIR_DATA = "pair_data"
    PAIRS = "pairs"
    CANDIDATES = "candidates"
    RANKER = "ranker"
    RANK = "rank"
    PREFERENCE = "preference"
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
    """One thing done in each step of a stage, or between steps."""

    id: str
    kind: OpKind
    role: Role | None
    """The workers that do it; None for the controller."""
    inputs: tuple[Wire, ...] = ()
    outputs: tuple[Port, ...] = ()
    ahead: bool = False
    """May run ahead of the step it belongs to, by up to `hardware.staleness` steps."""
    every: int | None = None
    """Done between steps, whenever the run's steps are a multiple of this; None where it is done in every step."""
    at_start: bool = False
    """Done before the run's first step too."""


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
    """When a part of a GPU's memory is in use; besides `resident`, only one phase at a time."""

    RESIDENT = "resident"
    STARTING = "starting"
    SAMPLING = "sampling"
    VALUING = "valuing"
    LEARNING = "learning"
    STEPPING = "stepping"
    """The optimiser's step, of the policy or of the critic."""


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
    """Costs of a step of a stage, at its largest horizon."""

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


class DiskUse(StrEnum):
    """A part of the run folder."""

    CHECKPOINTS = "checkpoints"
    MODELS = "exported models"
    STARTS = "starts and references"
    EPISODES = "training episodes"
    EVALUATIONS = "evaluation episodes"


@frozen
class DiskItem:
    """Space of one part of the run folder, at its fullest."""

    use: DiskUse
    count: int
    bytes: int
    """Of episodes, the most there can be."""


@frozen
class Transfer:
    """Weights that a sync sends."""

    bytes: int
    """For one sampler."""
    samplers: int
    nodes: int
    """On which the samplers are; each gets the weights once."""
    seconds: float | None
    """An estimate; None on a CPU, on an unknown GPU and within one process."""


@frozen
class Budget:
    """Resources of the run."""

    parameters: int | None
    """None where the model's sizes are not known here."""
    trainable_parameters: int | None
    capacity_bytes: int | None
    """Memory of one GPU; None on a CPU or an unknown GPU."""
    memory: tuple[MemoryUse, ...]
    zero: int | None = None
    """The ZeRO stage that runs, which may not be the one that is set; None where nothing learns."""
    transfer: Transfer | None = None
    """None where no weights are sent, or the model's sizes are not known here."""
    disk: tuple[DiskItem, ...] = ()
    """Of the run folder; empty where the model's sizes are not known here."""


@frozen
class PlanStage:
    """A stage: its complete settings, and the ops of each step."""

    index: int
    kind: Kind
    settings: Stage
    ops: tuple[Op, ...]
    budget: StageBudget


@frozen
class Plan:
    """A complete run."""

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
    plays_earlier: bool = False
    """Whether earlier checkpoints of the run have seats in an environment, so that those kept decide who plays."""


# --- peaks ---------------------------------------------------------------------------------------------------------


def peaks(uses: Iterable[MemoryUse], layout: Layout) -> Mapping[Role, int]:
    """The peak memory of a GPU: one figure for all roles that share GPUs, named after the learner.

    Everything resident counts at all times; of the phases of all roles only the largest does.
    """
    resident, phases = Counter[Role](), dict[Role, Counter[tuple[Role, Phase]]]()
    for use in uses:
        if use.host:
            continue
        gpu = Role.ROLLOUT if use.role is Role.ROLLOUT and layout is Layout.SPLIT else Role.LEARNER
        held = phases.setdefault(gpu, Counter())
        for item in use.items:
            if item.phase is Phase.RESIDENT:
                resident[gpu] += item.bytes
            else:
                held[use.role, item.phase] += item.bytes
    return {gpu: resident[gpu] + max(held.values(), default=0) for gpu, held in phases.items()}
