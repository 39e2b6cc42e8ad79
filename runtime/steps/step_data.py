"""What the ops of one step hand to each other, and the result of the step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import nan
from typing import TYPE_CHECKING

from ..guards import GuardSignals
from ..learning.metrics import rate, step_facts, train_metrics, worst_fault
from ..learning.preference_pairs import Pair, Response
from ..learning.reward import Scored
from ..learning.training_batch import TrainingBatch
from ..learning.training_record import TrainingRecord
from ..protocols import Floats, TrainSequence, UpdateMetrics, ValueMetrics
from ..rollout.episode import Episode, Group, Segment, Task
from ..storage.training_log import StepTraining
from .rollout_batch import RolloutBatch

if TYPE_CHECKING:
    from .turn_preference import Candidates

__all__ = ["Mismatch", "StepData", "StepResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """How far the learner's log-probs of sampled tokens are from the sampler's, of the same weights or older ones."""

    kl: float
    """Mean k3 estimate per token."""
    ratio_error: float
    """Largest |ratio - 1|."""
    truncated: float = nan
    """Share of tokens whose importance weight was truncated."""


@dataclass(slots=True)
class StepData:
    """A field for each type of port; None until an op has filled it."""

    tasks: Sequence[Task] | None = None
    episodes: Sequence[Group] | None = None
    scored: list[list[Scored]] | None = None
    values: Sequence[Floats] | None = None
    batch: TrainingBatch | None = None
    demonstrations: Sequence[Episode] | None = None
    candidates: Candidates | None = None
    pairs: Sequence[Pair] | None = None
    reference_logprobs: Sequence[Floats] | Mapping[Response, float] | None = None
    old_logprobs: Sequence[Floats] | None = None

    num_tasks: int | None = None
    """Tasks to draw; as the recipe says if None."""
    rounds: int = 0
    """Of further sampling, under `filter.resample`."""
    staleness: int = 0
    """Steps between the weights that sampled and those that are trained."""
    judged: dict[str, float] = field(default_factory=dict)
    """Metrics of a judge's verdicts."""
    sequences: list[list[TrainSequence]] | None = None
    """The batch with all log-probs that the loss compares with."""
    penalised: Mapping[Segment, Floats] = field(default_factory=dict)
    """Reference log-probs of all that was sampled, where a KL penalty was in the reward."""
    records: Mapping[Episode, TrainingRecord] = field(default_factory=dict)
    """What became of each episode that was scored."""
    mismatch: Mismatch | None = None
    updates: list[UpdateMetrics] = field(default_factory=list)
    value_updates: list[ValueMetrics] = field(default_factory=list)
    measured: dict[str, float] = field(default_factory=dict)
    """Metrics of the episodes and their groups."""
    row: dict[str, float | int | str] = field(default_factory=dict)
    """Further metrics, under the names of the run folder."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Spent on each op, by its id."""

    def take(self, batch: RolloutBatch) -> None:
        """Take over what was sampled for this step, now or ahead of it."""
        self.episodes, self.rounds, self.staleness = batch.groups, batch.rounds, batch.staleness
        self.judged = dict(batch.judged)
        self.seconds |= batch.seconds

    @property
    def played(self) -> tuple[Episode, ...]:
        return tuple(episode for group in self.episodes or () for episode in group.episodes)

    @property
    def sampled_tokens(self) -> int:
        return sum(episode.sampled_tokens for episode in self.played)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step did."""

    updates: int
    """Optimiser updates that changed the weights."""
    facts: Mapping[str, float]
    """Metrics under the names that expressions use."""
    row: Mapping[str, float | int | str]
    """Metrics under the names of the run folder."""
    signals: GuardSignals
    groups: tuple[Group, ...] = ()
    """As they were played."""
    training: StepTraining = field(default_factory=StepTraining)
    """What became of their episodes."""

    @classmethod
    def of(cls, data: StepData, stage: int) -> StepResult:
        facts = step_facts(data.measured, data.updates)
        signals = GuardSignals(fault=worst_fault([*data.updates, *data.value_updates]))
        if data.batch is not None:
            # only samples of the newest weights show how far apart the engines are
            mismatch = data.mismatch if data.staleness == 0 else None
            signals = replace(
                signals,
                entropy=facts.get("entropy"),
                zero_std_frac=facts.get("zero_std_frac"),
                invalid_rate=facts.get("invalid_rate"),
                mismatch_kl=mismatch.kl if mismatch else None,
                mismatch_ratio=1 + mismatch.ratio_error if mismatch else None,
            )
        return cls(
            updates=sum(update.fault is None for update in data.updates),
            facts=facts,
            row={"horizon/stage": stage, **dict(_row(data))},
            signals=signals,
            groups=tuple(data.episodes or ()),
            training=StepTraining(
                records=_records(data),
                sequences={id(each.ids): each for group in data.sequences or () for each in group},
                penalised=data.penalised,
                has_own_logprobs=data.old_logprobs is not None,
            ),
        )


def _records(data: StepData) -> Mapping[Episode, TrainingRecord]:
    if data.records or data.scored is None:
        return data.records
    return {each.episode: TrainingRecord(reward=each.total) for group in data.scored for each in group}


def _row(data: StepData) -> Iterator[tuple[str, float | int | str]]:
    yield from data.judged.items()
    yield from data.measured.items()
    yield from data.row.items()
    yield from train_metrics(data.updates).items()
    if data.mismatch is not None:
        yield from ((f"mismatch/{name}", value) for name, value in asdict(data.mismatch).items())
    if data.played:
        yield "horizon/turns", max(episode.horizon for episode in data.played)
        yield "perf/tokens_per_s", rate(data.sampled_tokens, _seconds(data, "rollout", "resample"))
    tokens = sum(update.tokens for update in data.updates)
    yield "perf/update_tokens_per_s", rate(tokens, _seconds(data, "update"))
    yield from ((f"timing_s/{op}", seconds) for op, seconds in data.seconds.items())


def _seconds(data: StepData, *ops: str) -> float:
    return sum(data.seconds.get(op, 0.0) for op in ops)
