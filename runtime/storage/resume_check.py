"""Whether a run may be gone on with by a plan that is not quite its own.

Enters: two plans as text. Leaves: yes or no. What says only where and how patiently the work is done may differ, so
that what made a run fail can be mended: memory, time limits, an address. What decides what is learnt may not.
"""

from __future__ import annotations

from dataclasses import replace

from ...dsl.model.plan import Plan, PlanStage
from ...dsl.model.recipe import Environment, Hardware, Judge, Rollout, RolloutHardware
from ...dsl.publish.plan_json import loads

__all__ = ["can_resume"]


def can_resume(then: str, now: str) -> bool:
    """Whether the run of one plan may be resumed by the other."""
    return then == now or _decisive(loads(Plan, then)) == _decisive(loads(Plan, now))


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
    environments = {name: _environment(each) for name, each in stage.settings.environments.items()}
    reward = replace(stage.settings.reward, judge=_judge(stage.settings.reward.judge))
    return replace(stage, settings=replace(stage.settings, environments=environments, reward=reward))


def _judge(judge: Judge | None) -> Judge | None:
    if judge is None:
        return None
    asked = {name: getattr(judge, name) for name in ("model", "prompt", "scope", "scale", "samples")}
    return Judge(url="", **asked)


def _environment(environment: Environment) -> Environment:
    return replace(environment, url=environment.url and "", token=None)
