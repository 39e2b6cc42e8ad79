"""A step of reinforcement: take the batch that was played for it, score, compare, learn; and how a batch is played.

Enters: a Context. Leaves: a StepResult; what was learnt is in the learner. Nothing that can be refused comes after the
first update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import nan

import numpy as np

from ...dsl.model.algorithm import KL, Baseline, Correction, Importance, Kind, KLPlace
from ...dsl.model.recipe import DType
from ...dsl.model.stage_kinds import episodes_per_task
from ..errors import StepRefused
from ..guards import GuardSignals
from ..learning.critic_values import attach_values, critic_metrics
from ..learning.filters import groups_missing, keeps_group
from ..learning.importance import importance_weights, is_truncated
from ..learning.kl_penalty import apply_kl_penalty, sampled_sequences
from ..learning.metrics import group_metrics, rate, rollout_metrics, step_facts, train_metrics, worst_fault
from ..learning.reward import RewardError, Scored
from ..learning.training_batch import ScoredGroups, build_training_batch, score_groups
from ..progress import Progress
from ..protocols import Floats, SamplingSettings, TrainSequence, UpdateMetrics, ValueMetrics, ValueSettings
from ..rollout.episode import Group, Task
from ..rollout.groups import GroupRequest
from ..rollout.task_sampler import shuffle
from .few_shot import examples_for
from .judge import judge_groups
from .rollout_batch import RolloutBatch
from .stage_context import (
    StageContext,
    StepResult,
    episode_limits,
    kl_weight,
    play_settings,
    refuse_faults,
    sampling_settings,
    update_settings,
)

__all__ = ["count_batch", "equal_parts", "next_batch", "rl_step", "scored_groups"]


async def rl_step(context: StageContext) -> StepResult:
    """Take the next batch, score, compare, learn."""
    batch = await next_batch(context)
    played = context.clock()
    book = scored_groups(context, batch.groups)
    context.progress.scales = dict(book.scales)
    groups, pull = await _pulled(context, book.groups)
    teaching = build_training_batch(await _valued(context, groups), context.stage, context.names())
    batches, mismatch = await _with_logprobs(context, teaching.groups)
    valuing = _value_settings(context)
    prepared = context.clock()
    updates = [] if _warms_up(context) else await _learn(context, batches)
    learnt = context.clock()
    critic = await _learn_values(context, batches, valuing)
    mismatch = mismatch or _first(updates)
    measured = rollout_metrics(batch.episodes) | group_metrics(book.groups)
    row = {
        **count_batch(context, batch),
        **measured,
        **pull,
        **{f"filter/masked_{reason}": count for reason, count in sorted(teaching.masked.items())},
        "filter/kept_groups": teaching.kept_groups,
        "filter/rounds": batch.rounds,
        **train_metrics(updates),
        **critic_metrics(critic, teaching.sequences),
        **(mismatch.row if mismatch else {}),
        "timing_s/prepare": prepared - played,
        "timing_s/update": learnt - prepared,
        **({"timing_s/critic": context.clock() - learnt} if critic else {}),
        "perf/update_tokens_per_s": rate(sum(update.tokens for update in updates), learnt - prepared),
    }
    facts = step_facts(measured, updates)
    return StepResult(
        updates=sum(update.fault is None for update in updates),
        facts=facts,
        row=row,
        signs=GuardSignals(
            fault=worst_fault([*updates, *critic]),
            entropy=facts.get("entropy"),
            zero_std_frac=facts.get("zero_std_frac"),
            invalid_rate=facts.get("invalid_rate"),
            # only what the newest weights played tells of the engines alone
            mismatch_kl=mismatch.kl if mismatch and batch.staleness == 0 else None,
        ),
        episodes=batch.episodes,
    )


def count_batch(context: StageContext, batch: RolloutBatch) -> dict[str, float]:
    """Counts a batch that was learnt from; what there is to tell of how it was played."""
    tokens = sum(episode.sampled_tokens for episode in batch.episodes)
    context.progress.episodes += len(batch.episodes)
    context.progress.sampled_tokens += tokens
    return {
        "horizon/turns": max(episode.horizon for episode in batch.episodes),
        "horizon/stage": context.progress.stage,
        **({"rollout/staleness": batch.staleness} if context.plan.hardware.staleness else {}),
        **batch.judged,
        "timing_s/rollout": batch.seconds,
        "perf/tokens_per_s": rate(tokens, batch.seconds),
    }


# --- playing -------------------------------------------------------------------------------------------------------


async def next_batch(context: StageContext) -> RolloutBatch:
    """What this step learns from; how it is played is written once, for now and for steps ahead."""

    async def play(view: Progress, staleness: int) -> RolloutBatch:
        return await _batch(replace(context, progress=view), staleness)

    stage = context.plan.stages[context.progress.stage]
    # only reinforcement corrects for weights that were older, so that no other stage is played ahead
    most = stage.budget.max_steps if stage.kind is Kind.RL else context.progress.step + 1
    return await context.prefetcher.next(context.progress, most, play)


async def _batch(context: StageContext, staleness: int) -> RolloutBatch:
    """A step's groups; under `filter.resample` further ones until enough of them teach something."""
    algorithm, started = context.stage.algorithm, context.clock()
    groups, row, rounds = list[Group](), dict[str, float](), 0
    wanted = algorithm.groups_per_step
    while wanted:
        found = await judge_groups(context, await _play(context, wanted, rounds), rounds)
        groups += found.groups
        row = {name: row.get(name, 0.0) + value for name, value in found.row.items()}
        wanted = groups_missing(_passing(context, groups), algorithm.groups_per_step, rounds, algorithm.filter)
        rounds += wanted > 0
    return RolloutBatch(
        groups=tuple(groups),
        rounds=rounds,
        mixture=context.progress.mixture,
        staleness=staleness,
        seconds=context.clock() - started,
        judged=row,
    )


async def _play(context: StageContext, count: int, rounds: int) -> list[Group]:
    weights = {name: context.value(environment.weight) for name, environment in context.stage.environments.items()}
    tasks = context.progress.mixture.draw(context.pools, weights, count, context.plan.seed)
    algorithm, draw = context.stage.algorithm, sampling_settings(context)
    groups = await _groups(context, tasks, episodes_per_task(algorithm), draw, "group", rounds)
    if algorithm.advantage.baseline is not Baseline.GREEDY:
        return groups
    likeliest = await _groups(context, tasks, 1, replace(draw, temperature=0.0), "greedy", rounds)
    return [replace(group, greedy=best.episodes[0]) for group, best in zip(groups, likeliest, strict=True)]


async def _groups(
    context: StageContext, tasks: Sequence[Task], size: int, draw: SamplingSettings, purpose: str, rounds: int
) -> list[Group]:
    orders = [
        GroupRequest(
            task=task,
            size=size,
            limits=episode_limits(context, context.stage.environments[task.environment]),
            seed=context.seed(purpose, rounds, at),
            examples=told,
        )
        for at, (task, told) in enumerate(zip(tasks, await examples_for(context, tasks), strict=True))
    ]
    context.reporter.phase("rollout")
    groups = await context.workers.play(
        orders, play_settings(context, len(tasks) * size, draw), context.reporter.episode
    )
    refuse_faults(context, [episode for group in groups for episode in group.episodes], "rollout")
    return groups


def _passing(context: StageContext, groups: Sequence[Group]) -> int:
    book = scored_groups(context, groups)
    return sum(keeps_group(group, context.stage.algorithm.filter, context.names()) for group in book.groups)


def scored_groups(context: StageContext, groups: Sequence[Group]) -> ScoredGroups:
    void = context.value(context.stage.reward.invalid_turn)
    try:
        return score_groups(groups, context.stage, void, context.names(), context.progress.scales)
    except RewardError as error:
        raise StepRefused(f"reward: {error}") from error


async def _pulled(context: StageContext, book: list[list[Scored]]) -> tuple[list[list[Scored]], dict[str, float]]:
    """Under `kl: {place: reward}`, with what each token costs for straying from the reference."""
    settings, coef = context.stage.algorithm.kl, kl_weight(context)
    if settings.place is not KLPlace.REWARD or coef == 0:
        return book, {}
    context.reporter.phase("reference")
    temperature = context.value(context.stage.sampling.temperature)
    reference = await context.workers.logprobs(sampled_sequences(book), temperature, reference=True)
    groups, mean = apply_kl_penalty(book, reference, settings, coef)
    context.progress.kl_scale *= kl_factor(mean, settings)
    return groups, {"reward/kl": mean, "reward/kl_coef": coef}


async def _valued(context: StageContext, book: list[list[Scored]]) -> list[list[Scored]]:
    """With what the critic expected before each token, if there is one."""
    if not _has_critic(context):
        return book
    context.reporter.phase("values")
    values = await context.workers.values(sampled_sequences(book))
    if not all(np.isfinite(each).all() for each in values):
        raise StepRefused("values: the critic says what is not a number; resume with a smaller 'algorithm.critic.lr'")
    return attach_values(book, values)


def _has_critic(context: StageContext) -> bool:
    return context.stage.algorithm.advantage.baseline is Baseline.CRITIC


# --- log-probs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mismatch:
    """How far the learner's log-probs of sampled tokens are from the sampler's, of the same weights or older ones."""

    kl: float
    """Mean k3 estimate per token."""
    ratio_error: float
    """Largest |ratio - 1|."""
    truncated: float = nan
    """Share of the tokens whose weight was cut, where tokens are weighted."""

    @property
    def row(self) -> dict[str, float]:
        return {
            "mismatch/kl": self.kl,
            "mismatch/ratio_error": self.ratio_error,
            "mismatch/truncated": self.truncated,
        }


def _first(updates: Sequence[UpdateMetrics]) -> _Mismatch | None:
    """Before its first update the learner is still the sampler's twin, and the update measures what lies between."""
    return _Mismatch(kl=updates[0].sampler_kl, ratio_error=updates[0].ratio_error) if updates else None


async def _with_logprobs(
    context: StageContext, groups: list[list[TrainSequence]]
) -> tuple[list[list[TrainSequence]], _Mismatch | None]:
    """Adds what the loss compares with, where it does: the reference's log-probs, and the learner's own before it."""
    algorithm = context.stage.algorithm
    flat = [sequence for group in groups for sequence in group]
    if not flat:
        return groups, None
    mismatch = None
    temperature = context.value(context.stage.sampling.temperature)
    if algorithm.kl.place is KLPlace.LOSS and context.value(algorithm.kl.coef) > 0:
        context.reporter.phase("reference")
        found = await context.workers.logprobs(flat, temperature, reference=True)
        flat = [replace(sequence, reference_logprobs=values) for sequence, values in zip(flat, found, strict=True)]
    if _corrects(context):
        context.reporter.phase("old log-probs")
        found = await context.workers.logprobs(flat, temperature, reference=False)
        sampled = flat
        flat = [_corrected(sequence, own, algorithm.importance) for sequence, own in zip(flat, found, strict=True)]
        mismatch = _between(sampled, flat, algorithm.importance)
    rest = iter(flat)
    return [[next(rest) for _ in group] for group in groups], mismatch


def _corrects(context: StageContext) -> bool:
    """In fp32 on fresh samples the sampler's log-probs are the learner's own to 1e-5: a second forward buys nothing."""
    fresh = context.plan.hardware.staleness == 0
    exact = context.plan.model.dtype is DType.FP32 or (
        context.plan.model.dtype is DType.AUTO and context.plan.hardware.gpus_per_node == 0
    )
    return not (exact and fresh) and context.stage.algorithm.importance.correction is not Correction.NONE


def _old_logprobs(sequence: TrainSequence) -> Floats:
    assert sequence.old_logprobs is not None, "sampled sequences carry the log-probs they were drawn with"
    return sequence.old_logprobs


def _corrected(sequence: TrainSequence, own: Floats, settings: Importance) -> TrainSequence:
    weights = importance_weights(own, _old_logprobs(sequence), sequence.loss_mask, settings)
    return replace(sequence, old_logprobs=own, weights=weights)


def _between(sampled: Sequence[TrainSequence], own: Sequence[TrainSequence], settings: Importance) -> _Mismatch:
    log_ratio = np.concatenate(
        [
            (_old_logprobs(mine) - _old_logprobs(theirs)).astype(np.float64)[mine.loss_mask]
            for mine, theirs in zip(own, sampled, strict=True)
        ]
    )
    error = np.expm1(log_ratio)
    weights = np.concatenate([each.weights[each.loss_mask] for each in own if each.weights is not None])
    return _Mismatch(
        kl=float((error - log_ratio).mean()),
        ratio_error=float(np.abs(error).max()),
        truncated=float(is_truncated(weights, settings).mean()),
    )


# --- learning ------------------------------------------------------------------------------------------------------


async def _learn(context: StageContext, groups: list[list[TrainSequence]]) -> list[UpdateMetrics]:
    """Passes over the groups in a shuffled order; stops early when the policy has moved far enough from the sampler."""
    algorithm, updates = context.stage.algorithm, list[UpdateMetrics]()
    if not groups:
        return updates
    context.reporter.phase("update")
    for epoch in range(algorithm.epochs):
        for sequences in _pass(context, groups, context.seed("order", epoch)):
            updates.append(await context.workers.update(sequences, update_settings(context)))
            if updates[-1].fault is None:
                context.progress.updates += 1
                if algorithm.kl.place is KLPlace.LOSS:
                    context.progress.kl_scale *= kl_factor(updates[-1].reference_kl, algorithm.kl)
            if algorithm.kl_stop is not None and updates[-1].sampler_kl > algorithm.kl_stop:
                return updates
    return updates


def _warms_up(context: StageContext) -> bool:
    """Whether the critic learns alone as yet."""
    return _has_critic(context) and context.progress.step < context.stage.algorithm.critic.warmup_steps


def _value_settings(context: StageContext) -> ValueSettings | None:
    critic = context.stage.algorithm.critic
    if not _has_critic(context):
        return None
    return ValueSettings(lr=context.value(critic.lr), clip=critic.clip, max_grad_norm=critic.max_grad_norm)


async def _learn_values(
    context: StageContext, groups: list[list[TrainSequence]], settings: ValueSettings | None
) -> list[ValueMetrics]:
    """The critic's own passes over the groups."""
    if not groups or settings is None:
        return []
    context.reporter.phase("critic")
    return [
        await context.workers.update_critic(sequences, settings)
        for epoch in range(context.stage.algorithm.critic.epochs)
        for sequences in _pass(context, groups, context.seed("critic order", epoch))
    ]


def _pass(context: StageContext, groups: list[list[TrainSequence]], seed: int) -> Iterator[list[TrainSequence]]:
    """All groups once in a shuffled order, update by update."""
    algorithm = context.stage.algorithm
    for places in equal_parts(shuffle(len(groups), seed), algorithm.groups_per_update or algorithm.groups_per_step):
        yield [sequence for place in places for sequence in groups[place]]


def equal_parts(order: Sequence[int], most: int) -> list[Sequence[int]]:
    """As few as can be, as equal as can be: where groups were filtered out, no update is left with a mere rest."""
    count = -(-len(order) // most)
    borders = [len(order) * part // count for part in range(count + 1)]
    return [order[low:high] for low, high in pairwise(borders)]


def kl_factor(measured: float, settings: KL) -> float:
    """What an adaptive weight is multiplied with after an update: at twice the target it doubles in `target_steps`.

    2 ** (e / target_steps), e = measured / target - 1 held within -1 and 1
    """
    if settings.target is None:
        return 1.0
    error = min(max(measured / settings.target - 1, -1.0), 1.0)
    return float(2.0 ** (error / settings.target_steps))
