"""The ops of a stage: what each step does, in the order in which the runtime walks them, and what travels between.

To add one: a kind in `model/plan.py`, a place here, a function in `runtime/steps/ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..frozen import frozen
from ..model.algorithm import Correction, DataSource, Kind, KLPlace, Level, Preset, Reject, RetrainFrom
from ..model.plan import Op, OpKind, Port, PortType, Role, Wire
from ..model.recipe import Checkpoint, DType, Eval, Hardware, Model, Stage
from ..model.stage_kinds import (
    groups_per_update,
    has_critic,
    has_reference,
    has_teacher,
    kind_of,
    learns,
    samples,
)

__all__ = ["stage_ops"]


@frozen
class _Context:
    """What decides a stage's ops."""

    stage: Stage
    model: Model
    hardware: Hardware


def stage_ops(
    stage: Stage, model: Model, hardware: Hardware, evaluation: Eval | None, checkpoint: Checkpoint
) -> tuple[Op, ...]:
    """Ops of one step, each after those that it takes from, and those that are due between steps."""
    context = _Context(stage=stage, model=model, hardware=hardware)
    ops = _KINDS[kind_of(stage.algorithm)](context)
    weights = tuple(_wire(op, PortType.WEIGHTS) for op in ops if op.id == "update")
    # a stage that does nothing but evaluate does it once
    if evaluation is not None and learns(stage.algorithm):
        name = "eval" if weights else "eval_between"
        evaluate = _op(name, OpKind.EVAL, Role.ROLLOUT, weights, PortType.METRICS)
        ops.append(replace(evaluate, every=stage.eval_every or evaluation.every, at_start=evaluation.at_start))
    save = _op("save", OpKind.SAVE, Role.LEARNER if weights else None, weights, PortType.FOLDER)
    return (*ops, replace(save, every=checkpoint.every))


def _wire(op: Op, type_: PortType, previous: bool = False) -> Wire:
    return Wire(op=op.id, port=type_.value, type=type_, previous=previous)


def _op(id_: str, kind: OpKind, role: Role | None, inputs: Sequence[Wire], *outputs: PortType) -> Op:
    ports = tuple(Port(name=each.value, type=each) for each in outputs)
    return Op(id=id_, kind=kind, role=role, inputs=tuple(inputs), outputs=ports)


def _add(ops: list[Op], id_: str, kind: OpKind, role: Role | None, inputs: Sequence[Wire], *outputs: PortType) -> Wire:
    """Add an op; what follows takes its first output by this wire."""
    ops.append(_op(id_, kind, role, inputs, *outputs))
    return _wire(ops[-1], outputs[0])


_UPDATED = Wire(op="update", port="weights", type=PortType.WEIGHTS, previous=True)


# --- sampling ------------------------------------------------------------------------------------------------------


def _sampling(context: _Context) -> list[Op]:
    """The sampler takes the weights of the step before; tasks are drawn, played and, where a judge scores, judged."""
    ops: list[Op] = []
    sync = _add(ops, "sync", OpKind.SYNC, Role.LEARNER, (_UPDATED,), PortType.WEIGHTS)
    tasks = _add(ops, "tasks", OpKind.TASKS, None, (), PortType.TASKS)
    episodes = _add(ops, "rollout", OpKind.ROLLOUT, Role.ROLLOUT, (tasks, sync), PortType.EPISODES)
    if context.stage.reward.judge is not None:
        episodes = _add(ops, "judge", OpKind.JUDGE, None, (episodes,), PortType.EPISODES)
    if context.stage.algorithm.filter.resample:
        _add(ops, "resample", OpKind.RESAMPLE, Role.ROLLOUT, (episodes, sync), PortType.EPISODES)
    # only reinforcement learning corrects for older weights
    return [replace(op, ahead=kind_of(context.stage.algorithm) is Kind.RL) for op in ops]


def _played(context: _Context) -> list[Op]:
    ops = _sampling(context)
    return [*ops, _op("reward", OpKind.REWARD, None, (_wire(ops[-1], PortType.EPISODES),), PortType.SCORED)]


# --- learning ------------------------------------------------------------------------------------------------------


def _add_reference(ops: list[Op], context: _Context, source: Wire) -> Wire:
    adapted = context.model.lora is not None and not has_teacher(context.stage.algorithm)
    role = Role.LEARNER if adapted else Role.REFERENCE
    return _add(ops, "reference", OpKind.REFERENCE, role, (source,), PortType.REFERENCE_LOGPROBS)


def _update(kind: OpKind, *inputs: Wire) -> Op:
    return _op("update", kind, Role.LEARNER, inputs, PortType.WEIGHTS, PortType.METRICS)


def _rl(context: _Context) -> list[Op]:
    algorithm, ops = context.stage.algorithm, _played(context)
    scored = _wire(ops[-1], PortType.SCORED)
    in_reward = has_reference(algorithm) and algorithm.kl.place is KLPlace.REWARD
    inputs = [scored]
    if in_reward:
        inputs.append(_add_reference(ops, context, scored))
    if has_critic(algorithm):
        inputs.append(_add(ops, "values", OpKind.VALUES, Role.CRITIC, (scored,), PortType.VALUES))
    batch = _add(ops, "advantage", OpKind.ADVANTAGE, None, inputs, PortType.BATCH)
    inputs = [batch]
    if has_reference(algorithm) and not in_reward:
        inputs.append(_add_reference(ops, context, batch))
    gives_old = _needs_old_logprobs(context) and _can_give_old_logprobs(context)
    if _needs_old_logprobs(context) and not gives_old:
        old = _add(ops, "old_logprobs", OpKind.OLD_LOGPROBS, Role.LEARNER, (batch,), PortType.OLD_LOGPROBS)
        inputs.append(old)
    update = _update(OpKind.UPDATE, *inputs)
    given = (Port(name=PortType.OLD_LOGPROBS.value, type=PortType.OLD_LOGPROBS),) if gives_old else ()
    ops.append(replace(update, outputs=(*update.outputs, *given)))
    if has_critic(algorithm):
        ops.append(_op("critic", OpKind.CRITIC, Role.CRITIC, inputs, PortType.METRICS))
    return ops


def _needs_old_logprobs(context: _Context) -> bool:
    """In fp32 on fresh samples the sampler's log-probs equal the learner's to 1e-5: a second forward gains nothing."""
    dtype, hardware = context.model.dtype, context.hardware
    exact = dtype is DType.FP32 or (dtype is DType.AUTO and hardware.gpus_per_node == 0)
    corrects = context.stage.algorithm.importance.correction is not Correction.NONE
    return corrects and not (exact and hardware.staleness == 0)


def _can_give_old_logprobs(context: _Context) -> bool:
    """The forward pass of a step's first update is that of the log-probs before it, if it has the whole batch and each
    token's weight depends on no other: then a pass of their own would compute the same once more."""
    algorithm = context.stage.algorithm
    whole = groups_per_update(algorithm) >= algorithm.groups_per_step
    warms_up = has_critic(algorithm) and algorithm.critic.warmup_steps > 0
    by_token = algorithm.loss.ratio is Level.TOKEN and algorithm.importance.level is Level.TOKEN
    return whole and by_token and algorithm.importance.reject == Reject() and not warms_up


def _sft(context: _Context) -> list[Op]:
    if samples(context.stage.algorithm):
        ops = _played(context)
        ops.append(_op("keep", OpKind.KEEP, None, (_wire(ops[-1], PortType.SCORED),), PortType.DEMONSTRATIONS))
    else:
        ops = [_op("data", OpKind.DEMONSTRATIONS, None, (), PortType.DEMONSTRATIONS)]
    return [*ops, _update(OpKind.SFT, _wire(ops[-1], PortType.DEMONSTRATIONS))]


def _evolve(context: _Context) -> list[Op]:
    ops = _played(context)
    scored = _wire(ops[-1], PortType.SCORED)
    inputs = [_add(ops, "data", OpKind.RETRAINING_DATA, None, (scored,), PortType.DEMONSTRATIONS)]
    if context.stage.algorithm.evolve.retrain_from is RetrainFrom.BASE:
        inputs.append(_add(ops, "reset", OpKind.RESET, Role.LEARNER, (), PortType.WEIGHTS))
    return [*ops, _update(OpKind.SFT, *inputs)]


def _preference(context: _Context) -> list[Op]:
    algorithm = context.stage.algorithm
    if algorithm.data.source is not DataSource.ROLLOUT:
        ops = [_op("data", OpKind.PAIR_DATA, None, (), PortType.PAIRS)]
    else:
        ops = _played(context)
        scored = _wire(ops[-1], PortType.SCORED)
        if algorithm.use is Preset.TURN_DPO:
            candidates = _add(ops, "candidates", OpKind.CANDIDATES, Role.ROLLOUT, (scored,), PortType.CANDIDATES)
            outputs = (PortType.WEIGHTS, PortType.METRICS)
            critic = _add(ops, "critic", OpKind.RANKER, Role.CRITIC, (candidates,), *outputs)
            _add(ops, "pairs", OpKind.RANK, Role.CRITIC, (candidates, critic), PortType.PAIRS)
        else:
            _add(ops, "pairs", OpKind.PAIRS, None, (scored,), PortType.PAIRS)
    pairs = _wire(ops[-1], PortType.PAIRS)
    reference = _add_reference(ops, context, pairs)
    return [*ops, _update(OpKind.PREFERENCE, pairs, reference)]


def _eval(context: _Context) -> list[Op]:
    return [_op("eval", OpKind.EVAL, Role.ROLLOUT, (), PortType.METRICS)]


_KINDS: Mapping[Kind, Callable[[_Context], list[Op]]] = {
    Kind.RL: _rl,
    Kind.SFT: _sft,
    Kind.PREFERENCE: _preference,
    Kind.EVOLVE: _evolve,
    Kind.EVAL: _eval,
}
