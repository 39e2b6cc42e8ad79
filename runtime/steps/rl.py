"""Ops of reinforcement learning: reference and old log-probs, values, advantages, updates of the policy and the critic.

Nothing that can be refused comes after the first update.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...dsl.model.algorithm import KL, Baseline, Importance, KLPlace
from ...dsl.model.plan import Op, PortType
from ...dsl.model.stage_kinds import groups_per_update
from ..errors import StepRefused
from ..learning.importance import is_truncated, weigh_sequences
from ..learning.kl_penalty import apply_kl_penalty, sampled_sequences
from ..learning.metrics import critic_metrics
from ..learning.training_batch import TrainingBatch, attach_values, build_training_batch
from ..protocols import Floats, TrainSequence, ValueSettings
from ..workers.learner_worker import LearnerWorker
from .stage_context import StageContext, kl_weight, shuffled_parts, update_settings
from .step_data import Mismatch, StepData

__all__ = [
    "batch_reference_logprobs",
    "compute_old_logprobs",
    "compute_values",
    "estimate_advantages",
    "kl_factor",
    "sampled_reference_logprobs",
    "update_critic",
    "update_policy",
]


async def sampled_reference_logprobs(context: StageContext, data: StepData) -> list[Floats] | None:
    """Reference log-probs of all that was sampled, for a KL penalty in the reward; None while its weight is 0."""
    if kl_weight(context) == 0:
        return None
    return await _logprobs(context, sampled_sequences(data.scored or ()), reference=True)


async def batch_reference_logprobs(context: StageContext, data: StepData) -> list[Floats] | None:
    """Reference log-probs of the training batch, for a KL term in the loss; None while its weight is 0."""
    batch = _batch(data)
    if not batch.sequences or context.value(context.stage.algorithm.kl.coef) == 0:
        return None
    return await _logprobs(context, batch.sequences, reference=True)


async def compute_old_logprobs(op: Op, context: StageContext, data: StepData) -> None:
    """The learner's own log-probs before its first update, which the sampler's are corrected by."""
    sequences = _batch(data).sequences
    data.old_logprobs = await _logprobs(context, sequences, reference=False) if sequences else None


async def _logprobs(context: StageContext, sequences: Sequence[TrainSequence], *, reference: bool) -> list[Floats]:
    temperature = context.value(context.stage.sampling.temperature)
    return await context.workers.compute(LearnerWorker.logprobs, sequences, temperature, reference=reference)


async def compute_values(op: Op, context: StageContext, data: StepData) -> None:
    """The critic's value of every sampled token."""
    values = await context.workers.compute(LearnerWorker.values, sampled_sequences(data.scored or ()))
    if not all(np.isfinite(each).all() for each in values):
        raise StepRefused("values: the critic returned NaN or infinity; resume with a smaller 'algorithm.critic.lr'")
    data.values = values


async def estimate_advantages(op: Op, context: StageContext, data: StepData) -> None:
    assert data.scored is not None, "episodes are scored before they are compared"
    groups = data.scored
    if isinstance(data.reference_logprobs, list):
        settings, coef = context.stage.algorithm.kl, kl_weight(context)
        groups, mean = apply_kl_penalty(groups, data.reference_logprobs, settings, coef)
        context.progress.kl_scale *= kl_factor(mean, settings)
        data.row |= {"reward/kl": mean, "reward/kl_coef": coef}
        segments = (segment for group in groups for each in group for segment in each.episode.segments)
        data.penalised = dict(zip(segments, data.reference_logprobs, strict=True))
        data.reference_logprobs = None
    if data.values is not None:
        groups = attach_values(groups, data.values)
    data.batch = build_training_batch(groups, context.stage, context.names())
    data.records = data.batch.records
    data.row |= {
        **{f"filter/masked_{reason}": count for reason, count in sorted(data.batch.masked.items())},
        "filter/kept_groups": data.batch.kept_groups,
        "filter/rounds": data.rounds,
    }


def _batch(data: StepData) -> TrainingBatch:
    assert data.batch is not None, "advantages are computed before the batch is used"
    return data.batch


def _sequences(context: StageContext, data: StepData) -> list[list[TrainSequence]]:
    """The batch, group by group, with the log-probs that the loss compares with; put together once per step."""
    if data.sequences is None:
        batch = _batch(data)
        flat = batch.sequences
        if isinstance(data.reference_logprobs, list):
            pairs = zip(flat, data.reference_logprobs, strict=True)
            flat = [replace(sequence, reference_logprobs=logprobs) for sequence, logprobs in pairs]
        if data.old_logprobs is not None:
            settings = context.stage.algorithm.importance
            sampled, flat = flat, weigh_sequences(flat, data.old_logprobs, settings)
            data.mismatch = _mismatch(sampled, flat, settings)
        rest = iter(flat)
        data.sequences = [[next(rest) for _ in group] for group in batch.groups]
    return data.sequences


def _sampled_logprobs(sequence: TrainSequence) -> Floats:
    assert sequence.old_logprobs is not None, "sampled sequences carry the log-probs they were drawn with"
    return sequence.old_logprobs


def _mismatch(sampled: Sequence[TrainSequence], own: Sequence[TrainSequence], settings: Importance) -> Mismatch:
    log_ratio = np.concatenate(
        [
            (_sampled_logprobs(mine) - _sampled_logprobs(theirs)).astype(np.float64)[mine.loss_mask]
            for mine, theirs in zip(own, sampled, strict=True)
        ]
    )
    error = np.expm1(log_ratio)
    weights = np.concatenate([each.weights[each.loss_mask] for each in own if each.weights is not None])
    return Mismatch(
        kl=float((error - log_ratio).mean()),
        ratio_error=float(np.abs(error).max()),
        truncated=float(is_truncated(weights, settings).mean()),
    )


async def update_policy(op: Op, context: StageContext, data: StepData) -> None:
    """Passes over the groups in a shuffled order; stops early once the policy is far enough from the sampler."""
    groups = _sequences(context, data)
    # a rate without a value is refused here: once the weights have changed, nothing can be
    critic = _critic_settings(context)
    warms_up = critic is not None and context.progress.step < context.stage.algorithm.critic.warmup_steps
    if groups and not warms_up:
        await _update(op, context, groups, data)
    if data.mismatch is None and data.updates:
        # before its first update the learner still equals the sampler, and the update measures how they differ
        data.mismatch = Mismatch(kl=data.updates[0].sampler_kl, ratio_error=data.updates[0].ratio_error)


async def _update(op: Op, context: StageContext, groups: list[list[TrainSequence]], data: StepData) -> None:
    algorithm, updates = context.stage.algorithm, data.updates
    gives_old_logprobs = any(port.type is PortType.OLD_LOGPROBS for port in op.outputs)
    weighed: Mapping[TrainSequence, TrainSequence] = {}
    for sequences in _minibatches(context, groups, algorithm.epochs, "order"):
        if gives_old_logprobs and not weighed:
            weighed = await _update_weighed(context, sequences, data)
        else:
            sequences = [weighed.get(each, each) for each in sequences]
            updates.append(await context.workers.compute(LearnerWorker.update, sequences, update_settings(context)))
        if updates[-1].fault is None:
            context.progress.updates += 1
            if algorithm.kl.place is KLPlace.LOSS:
                context.progress.kl_scale *= kl_factor(updates[-1].reference_kl, algorithm.kl)
        if algorithm.kl_stop is not None and updates[-1].sampler_kl > algorithm.kl_stop:
            return


async def _update_weighed(
    context: StageContext, sequences: Sequence[TrainSequence], data: StepData
) -> Mapping[TrainSequence, TrainSequence]:
    """Make the first update of a step, which computes the old log-probs; return the whole batch, weighed by them."""
    assert data.sequences is not None, "the batch was put together"
    batch = [each for group in data.sequences for each in group]
    assert len(batch) == len(sequences), "a plan has this only where an update has the whole batch"
    settings = context.stage.algorithm.importance
    metrics, own = await context.workers.compute(
        LearnerWorker.update_weighed, sequences, update_settings(context), settings
    )
    data.updates.append(metrics)
    weighed = dict(zip(sequences, weigh_sequences(sequences, own, settings), strict=True))
    data.sequences = [[weighed[each] for each in group] for group in data.sequences]
    data.old_logprobs = [_sampled_logprobs(weighed[each]) for each in batch]
    data.mismatch = _mismatch(batch, [weighed[each] for each in batch], settings)
    return weighed


def _critic_settings(context: StageContext) -> ValueSettings | None:
    critic = context.stage.algorithm.critic
    if context.stage.algorithm.advantage.baseline is not Baseline.CRITIC:
        return None
    return ValueSettings(lr=context.value(critic.lr), clip=critic.clip, max_grad_norm=critic.max_grad_norm)


async def update_critic(op: Op, context: StageContext, data: StepData) -> None:
    """The critic's own passes over the groups."""
    groups, settings = _sequences(context, data), _critic_settings(context)
    assert settings is not None, "only a stage with a critic has this op"
    for sequences in _minibatches(context, groups, context.stage.algorithm.critic.epochs, "critic order"):
        data.value_updates.append(await context.workers.compute(LearnerWorker.update_critic, sequences, settings))
    data.row |= critic_metrics(data.value_updates, _batch(data).sequences)


def _minibatches(
    context: StageContext, groups: list[list[TrainSequence]], epochs: int, name: str
) -> Iterator[list[TrainSequence]]:
    algorithm = context.stage.algorithm
    for part in shuffled_parts(context, groups, groups_per_update(algorithm), epochs, name):
        yield [sequence for group in part for sequence in group]


def kl_factor(measured: float, settings: KL) -> float:
    """Factor of an adaptive KL coefficient after an update: at twice the target it doubles in `target_steps`.

    2 ** (e / target_steps), e = measured / target - 1 held within -1 and 1
    """
    if settings.target is None:
        return 1.0
    error = min(max(measured / settings.target - 1, -1.0), 1.0)
    return float(2.0 ** (error / settings.target_steps))
