"""The ops of a stage, run: one function per kind, walked in the order of the plan.

To add one: a function here or in the module of its topic, a row in OPS, its place in `dsl/planning/ops.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from ...dsl.model.plan import Op, OpKind, PortType
from ..errors import irrevocable
from ..learning.metrics import version_lags
from ..learning.preference_pairs import Response
from ..progress import Progress
from ..protocols import Floats
from .preference import build_score_pairs, next_pairs, pair_reference_logprobs, update_on_pairs
from .rl import (
    batch_reference_logprobs,
    compute_old_logprobs,
    compute_values,
    estimate_advantages,
    sampled_reference_logprobs,
    update_critic,
    update_policy,
)
from .rollout_batch import RolloutBatch
from .sampling import draw_tasks, groups_to_resample, judge_episodes, play_tasks, score_episodes
from .sft import choose_retraining_data, keep_episodes, next_demonstrations, reset_to_base, update_by_imitation
from .stage_context import RunOps, StageContext
from .step_data import StepData, StepResult
from .turn_preference import propose_candidates, rank_candidates, update_ranker

__all__ = ["OPS", "OpFunction", "check_ops", "is_due", "run_op", "run_step"]

OpFunction = Callable[[Op, StageContext, StepData], Awaitable[None]]


async def run_step(context: StageContext) -> StepResult:
    """Walk the ops of a step; those that may run ahead are walked by the prefetcher, now or before."""
    data, changed, trained_from = StepData(), False, context.progress.version
    for op in context.ops:
        if op.every is not None:
            continue
        if op.ahead:
            if data.episodes is None:
                data.take(await _next_batch(context, data))
            continue
        # once weights have changed, the state at the step's start cannot be saved any more
        with irrevocable() if changed else nullcontext():
            await run_op(op, context, data)
        changed = changed or op.kind in _CHANGES_WEIGHTS
    progress = context.progress
    progress.episodes += len(data.played)
    progress.sampled_tokens += data.sampled_tokens
    if data.episodes is not None and context.plan.hardware.staleness:
        data.row["rollout/staleness"] = data.staleness
    if data.episodes is not None and context.plan.hardware.in_flight:
        data.row |= version_lags(data.played, trained_from)
    return StepResult.of(data, progress.stage)


async def run_op(op: Op, context: StageContext, data: StepData) -> None:
    """Run an op, timed under its id."""
    started = context.clock()
    context.reporter.phase(op.id)
    await OPS[op.kind](op, context, data)
    data.seconds[op.id] = data.seconds.get(op.id, 0.0) + context.clock() - started


def check_ops(ops: Sequence[Op]) -> None:
    """Refuse ops that cannot be walked: an input that no earlier op of the step gives, or two ops of one name."""
    given = {(op.id, port.name): (at, port.type) for at, op in enumerate(ops) for port in op.outputs}
    if len({op.id for op in ops}) < len(ops):
        raise ValueError(f"two ops have the same id: {', '.join(op.id for op in ops)}")
    for at, op in enumerate(ops):
        for wire in op.inputs:
            place, type_ = given.get((wire.op, wire.port), (len(ops), None))
            if type_ is not wire.type or not (wire.previous or place < at):
                raise ValueError(f"op '{op.id}' takes '{wire.port}' from '{wire.op}', which does not give it before")


def is_due(op: Op, total_step: int) -> bool:
    """Whether an op is due between two steps, after so many steps of the run."""
    if op.every is None:
        return False
    return total_step % op.every == 0 if total_step else op.at_start


async def _next_batch(context: StageContext, data: StepData) -> RolloutBatch:
    """The batch that this step is trained on; how it is sampled is written once, for now and for steps ahead."""
    ahead = [op for op in context.ops if op.ahead]
    last_draw = OpKind.RESAMPLE if any(op.kind is OpKind.RESAMPLE for op in ahead) else OpKind.TASKS

    async def sync() -> None:
        for op in ahead:
            if op.kind is OpKind.SYNC:
                await run_op(op, context, data)

    async def play(view: Progress, staleness: int, drawn: Callable[[], None]) -> RolloutBatch:
        sampled, then = StepData(), replace(context, progress=view)
        for op in ahead:
            if op.kind is not OpKind.SYNC:
                await run_op(op, then, sampled)
            if op.kind is last_draw:
                drawn()
        return RolloutBatch(
            groups=tuple(sampled.episodes or ()),
            rounds=sampled.rounds,
            mixture=view.mixture,
            staleness=staleness,
            seconds=sampled.seconds,
            judged=sampled.judged,
        )

    most = context.plan.stages[context.progress.stage].budget.max_steps
    return await context.prefetcher.next(context.progress, most, sync, play)


async def _resample(op: Op, context: StageContext, data: StepData) -> None:
    """Sample further groups until enough of them have a training signal: the ops before this one, once per round."""
    before = context.ops[: context.ops.index(op)]
    while wanted := groups_to_resample(context, data):
        further = StepData(rounds=data.rounds + 1, num_tasks=wanted, judged=data.judged)
        for each in before:
            if each.kind is not OpKind.SYNC:
                await run_op(each, context, further)
        data.episodes = [*(data.episodes or ()), *(further.episodes or ())]
        data.rounds, data.judged = further.rounds, further.judged


def _by_run(do: Callable[[RunOps], Awaitable[None]]) -> OpFunction:
    """What needs the run and not the stage alone."""

    async def op_function(op: Op, context: StageContext, data: StepData) -> None:
        assert context.run is not None, "ops are walked within a run"
        await do(context.run)

    return op_function


async def _reference(op: Op, context: StageContext, data: StepData) -> None:
    data.reference_logprobs = await _REFERENCED[op.inputs[0].type](context, data)


_REFERENCED: Mapping[
    PortType, Callable[[StageContext, StepData], Awaitable[Sequence[Floats] | Mapping[Response, float] | None]]
] = {
    PortType.SCORED: sampled_reference_logprobs,
    PortType.BATCH: batch_reference_logprobs,
    PortType.PAIRS: pair_reference_logprobs,
}

OPS: Mapping[OpKind, OpFunction] = {
    OpKind.SYNC: _by_run(lambda run: run.sync()),
    OpKind.TASKS: draw_tasks,
    OpKind.ROLLOUT: play_tasks,
    OpKind.JUDGE: judge_episodes,
    OpKind.RESAMPLE: _resample,
    OpKind.REWARD: score_episodes,
    OpKind.REFERENCE: _reference,
    OpKind.VALUES: compute_values,
    OpKind.ADVANTAGE: estimate_advantages,
    OpKind.OLD_LOGPROBS: compute_old_logprobs,
    OpKind.UPDATE: update_policy,
    OpKind.CRITIC: update_critic,
    OpKind.DEMONSTRATIONS: next_demonstrations,
    OpKind.KEEP: keep_episodes,
    OpKind.RETRAINING_DATA: choose_retraining_data,
    OpKind.RESET: reset_to_base,
    OpKind.SFT: update_by_imitation,
    OpKind.PAIR_DATA: next_pairs,
    OpKind.PAIRS: build_score_pairs,
    OpKind.CANDIDATES: propose_candidates,
    OpKind.RANKER: update_ranker,
    OpKind.RANK: rank_candidates,
    OpKind.PREFERENCE: update_on_pairs,
    OpKind.EVAL: _by_run(lambda run: run.evaluate()),
    OpKind.SAVE: _by_run(lambda run: run.save()),
}
"""What each op of a plan does."""

_CHANGES_WEIGHTS = frozenset({OpKind.UPDATE, OpKind.CRITIC, OpKind.SFT, OpKind.RESET, OpKind.RANKER, OpKind.PREFERENCE})
