"""Whether a run may be resumed by a plan that is not quite its own.

Settings of where the work is done and how long to wait may differ, so that what made a run fail can be corrected:
memory, time limits, an address. Settings that decide what is learned may not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from ...dsl.model.hidden import conceal, reveal
from ...dsl.model.plan import Placement, Plan, PlanStage
from ...dsl.model.recipe import Hardware, Judge, Rollout, TrainHardware
from ...dsl.publish.plan_json import dump_canonical, to_json
from ...envs.registry import is_folder

__all__ = ["can_resume", "decisive_sha256", "list_differences"]


def can_resume(then: Plan, now: Plan) -> bool:
    """Whether the run of one plan may be resumed by the other."""
    return _decisive(then) == _decisive(now)


def decisive_sha256(plan: Plan) -> str:
    """Hash of all that must stay the same."""
    return hashlib.sha256(dump_canonical(reveal(_decisive(plan))).encode()).hexdigest()


def list_differences(then: Plan, now: Plan) -> list[str]:
    """List the keys that keep a run from being resumed, with both values; a key of all stages once."""
    old, new = (dict(_flat(to_json(conceal(_decisive(plan))))) for plan in (then, now))
    found: dict[str, list[str]] = {}
    for path in dict.fromkeys((*old, *new)):
        values = [json.dumps(side[path], ensure_ascii=False)[:80] if path in side else "not set" for side in (old, new)]
        if old.get(path) != new.get(path) and path[0] not in _DERIVED:
            stage, key = _key(path)
            found.setdefault(f"'{key}': {values[0]} in the run, {values[1]} now", []).append(stage)
    stages = {path[1] for path in (*old, *new) if path[0] == "stages"}
    return [
        text if {*where} in ({""}, stages) else f"{text} (stage {', '.join(where)})" for text, where in found.items()
    ]


_DERIVED = ("budget", "shape", "placement", "plays_earlier", "stage_names", "version")
"""Parts of a plan that follow from the rest."""


def _key(path: tuple[str, ...]) -> tuple[str, str]:
    """The stage, and the key as a recipe writes it."""
    if path[0] != "stages":
        return "", ".".join(path)
    return path[1], ".".join(part for part in path[2:] if part not in ("settings", "optimizer"))


def _flat(data: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Leaves by path; a stage by its name."""
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _flat(value, (*path, str(key)))
    elif path == ("stages",):
        for stage in data:
            yield from _flat(stage["settings"], (*path, stage["settings"]["stage"]))
    else:
        yield path, data


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
        placement=Placement(launcher="", workers=()),
        # if earlier checkpoints play, which ones do depends on which are kept
        checkpoint=replace(plan.checkpoint, keep=plan.checkpoint.keep if plan.plays_earlier else 1, keep_exports=0),
        stages=tuple(_stage(stage) for stage in plan.stages),
        # estimates
        budget=replace(plan.budget, memory=(), disk=(), zero=None, transfer=None),
    )


def _hardware(hardware: Hardware) -> Hardware:
    """What decides precision and which weights play which batch; any number of ranks can load a checkpoint."""
    return Hardware(
        gpus_per_node=min(hardware.gpus_per_node, 1),
        staleness=hardware.staleness,
        in_flight=hardware.in_flight,
        train=TrainHardware(fp32_head=hardware.train.fp32_head),
    )


def _named(use: str | None) -> str | None:
    """An environment by its name; a user's own folder by its last part, as it may have moved."""
    return f"./{PurePath(use).name}" if use is not None and is_folder(use) else use


def _stage(stage: PlanStage) -> PlanStage:
    environments = {
        name: replace(each, use=_named(each.use), url=each.url and "", token=None, sessions=None)
        for name, each in stage.settings.environments.items()
    }
    reward = stage.settings.reward
    if reward.judge is not None:
        asked = {name: getattr(reward.judge, name) for name in ("model", "prompt", "scope", "scale", "samples")}
        reward = replace(reward, judge=Judge(url="", **asked))
    # ops follow from the settings
    return replace(stage, ops=(), settings=replace(stage.settings, environments=environments, reward=reward))
