"""Whether a run may be resumed by a plan that is not quite its own.

Settings of where and how patiently the work is done may differ, so that what made a run fail can be corrected: memory,
time limits, an address. Settings that decide what is learned may not.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from ...dsl.model.plan import Plan, PlanStage
from ...dsl.model.recipe import Hardware, Judge, Rollout, RolloutHardware
from ...dsl.publish.plan_json import dump_canonical

__all__ = ["can_resume", "decisive_sha256"]


def can_resume(then: Plan, now: Plan) -> bool:
    """Whether the run of one plan may be resumed by the other."""
    return _decisive(then) == _decisive(now)


def decisive_sha256(plan: Plan) -> str:
    """Hash of all that must stay the same."""
    return hashlib.sha256(dump_canonical(_decisive(plan)).encode()).hexdigest()


def _decisive(plan: Plan) -> Plan:
    """With everything that may differ taken out."""
    return replace(
        plan,
        recipe_sha256="",
        description="",
        tags=(),
        logging=(),
        rollout=Rollout(),
        hardware=_hardware(plan.hardware),
        stages=tuple(_stage(stage) for stage in plan.stages),
        # estimates
        budget=replace(plan.budget, memory=()),
    )


def _hardware(hardware: Hardware) -> Hardware:
    rollout = RolloutHardware(tensor_parallel=hardware.rollout.tensor_parallel, gpus=hardware.rollout.gpus)
    train = replace(hardware.train, tokens_per_micro_batch=None, activation_checkpointing=True)
    return replace(hardware, threads=None, rollout=rollout, train=train)


def _stage(stage: PlanStage) -> PlanStage:
    environments = {
        name: replace(each, url=each.url and "", token=None) for name, each in stage.settings.environments.items()
    }
    reward = stage.settings.reward
    if reward.judge is not None:
        asked = {name: getattr(reward.judge, name) for name in ("model", "prompt", "scope", "scale", "samples")}
        reward = replace(reward, judge=Judge(url="", **asked))
    # ops follow from the settings
    return replace(stage, ops=(), settings=replace(stage.settings, environments=environments, reward=reward))
