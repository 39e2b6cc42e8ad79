"""The ops of a stage: what is done in each step, and what travels between.

Enters: a stage and what the run does besides learning. Leaves: ops in the order in which they are done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..model.algorithm import Algorithm, Kind, KLPlace
from ..model.plan import Op, OpKind, Port, PortType, Role, Wire
from ..model.recipe import Checkpoint, Eval, Model, Stage
from ..model.stage_kinds import has_critic, has_reference, kind_of, samples

__all__ = ["stage_ops"]


def stage_ops(stage: Stage, model: Model, evaluation: Eval | None, checkpoint: Checkpoint) -> tuple[Op, ...]:
    """Ops of one step, each after those that it takes from."""
    algorithm = stage.algorithm
    kind = kind_of(algorithm)
    if kind is Kind.EVAL:
        return (_evaluate((), 1),)
    reference_role = Role.LEARNER if model.lora is not None else Role.REFERENCE
    ops = [*_KINDS[kind](algorithm, reference_role), _sync()]
    if evaluation is not None:
        ops.append(_evaluate((_SYNCED,), evaluation.every))
    return (*ops, _save(checkpoint.every))


def _wire(op: str, port: PortType, previous: bool = False) -> Wire:
    return Wire(op=op, port=port.value, type=port, previous=previous)


def _op(id_: str, kind: OpKind, role: Role | None, inputs: tuple[Wire, ...], *outputs: PortType, every: int = 1) -> Op:
    ports = tuple(Port(name=each.value, type=each) for each in outputs)
    return Op(id=id_, kind=kind, role=role, inputs=inputs, outputs=ports, every=every)


_SYNCED = _wire("sync", PortType.WEIGHTS)
_LAST_SYNCED = _wire("sync", PortType.WEIGHTS, previous=True)
_SCORED = _wire("reward", PortType.SCORED)


def _played() -> list[Op]:
    """Tasks are drawn, played with the weights of the step before, and scored."""
    return [
        _op("tasks", OpKind.TASKS, None, (), PortType.TASKS),
        _op("rollout", OpKind.ROLLOUT, Role.ROLLOUT, (_wire("tasks", PortType.TASKS), _LAST_SYNCED), PortType.EPISODES),
        _op("reward", OpKind.REWARD, None, (_wire("rollout", PortType.EPISODES),), PortType.SCORED),
    ]


def _reference(source: Wire, role: Role) -> Op:
    return _op("reference", OpKind.REFERENCE, role, (source,), PortType.LOGPROBS)


def _values(source: Wire) -> Op:
    return _op("values", OpKind.VALUES, Role.CRITIC, (source,), PortType.VALUES)


def _update(*inputs: Wire) -> Op:
    return _op("update", OpKind.UPDATE, Role.LEARNER, inputs, PortType.WEIGHTS, PortType.METRICS)


def _critic(*inputs: Wire) -> Op:
    return _op("critic", OpKind.CRITIC, Role.CRITIC, inputs, PortType.METRICS)


def _sync() -> Op:
    return _op("sync", OpKind.SYNC, Role.LEARNER, (_wire("update", PortType.WEIGHTS),), PortType.WEIGHTS)


def _evaluate(inputs: tuple[Wire, ...], every: int) -> Op:
    return _op("eval", OpKind.EVAL, Role.ROLLOUT, inputs, PortType.METRICS, every=every)


def _save(every: int) -> Op:
    return _op("save", OpKind.SAVE, Role.LEARNER, (_wire("update", PortType.WEIGHTS),), PortType.FOLDER, every=every)


def _rl(algorithm: Algorithm, reference_role: Role) -> list[Op]:
    critic, reference = has_critic(algorithm), has_reference(algorithm)
    ops = _played()
    if reference:
        ops.append(_reference(_SCORED, reference_role))
    if critic:
        ops.append(_values(_SCORED))
    logprobs = (_wire("reference", PortType.LOGPROBS),) if reference else ()
    values = (_wire("values", PortType.VALUES),) if critic else ()
    in_reward = algorithm.kl.place is KLPlace.REWARD
    inputs = (_SCORED, *values, *(logprobs if in_reward else ()))
    ops.append(_op("advantage", OpKind.ADVANTAGE, None, inputs, PortType.BATCH))
    batch = _wire("advantage", PortType.BATCH)
    ops.append(_update(batch, *(() if in_reward else logprobs)))
    if critic:
        ops.append(_critic(batch))
    return ops


def _sft(algorithm: Algorithm, reference_role: Role) -> list[Op]:
    played = _played() if samples(algorithm) else []
    source = (_SCORED,) if played else ()
    data = _op("data", OpKind.DATA, None, source, PortType.BATCH)
    return [*played, data, _update(_wire("data", PortType.BATCH))]


def _preference(algorithm: Algorithm, reference_role: Role) -> list[Op]:
    ops = _played() if samples(algorithm) else [_op("data", OpKind.DATA, None, (), PortType.SCORED)]
    scored = _wire(ops[-1].id, PortType.SCORED)
    values: tuple[Wire, ...] = ()
    if has_critic(algorithm):
        ops.append(_values(scored))
        values = (_wire("values", PortType.VALUES),)
    ops.append(_op("pairs", OpKind.PAIRS, None, (scored, *values), PortType.PAIRS))
    pairs = _wire("pairs", PortType.PAIRS)
    ops.append(_reference(pairs, reference_role))
    ops.append(_update(pairs, _wire("reference", PortType.LOGPROBS)))
    if has_critic(algorithm):
        ops.append(_critic(scored))
    return ops


_KINDS: Mapping[Kind, Callable[[Algorithm, Role], list[Op]]] = {
    Kind.RL: _rl,
    Kind.SFT: _sft,
    Kind.PREFERENCE: _preference,
    Kind.EVOLVE: _sft,
}
