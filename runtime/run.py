"""Runs a plan: folder, manifest, workers, engine, signals, summary. The folder can always be resumed."""

from __future__ import annotations

import asyncio
import hashlib
import platform
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from .. import __version__
from ..dsl.check.paths import anchor_paths
from ..dsl.check.presets import load_preset
from ..dsl.model.plan import DiskUse, Plan
from ..dsl.model.recipe import Launcher
from ..dsl.publish.plan_json import dump_json
from .backends.registry import ENGINE_PACKAGES, installed_versions
from .data.judge_client import JudgeClient
from .engine import Engine, RunOutcome
from .errors import RunError
from .interrupts import StopSignal, handle_signals
from .pretrained.catalog import list_pretrained
from .reporting import EventKind
from .rollout.env_connections import EnvConnector, make_deadlines
from .sinks.console.console import Terminal
from .sinks.fanout import Fanout, list_variables, open_fanout, redact
from .storage.resume_check import can_resume, decisive_sha256, list_differences
from .storage.run_folder import CHECKPOINTS, JUDGE, START, FolderError, RunFolder, on_disk
from .storage.run_reader import RunReader
from .storage.summary import summarise_run
from .workers import inline, ray
from .workers.worker_group import WorkerGroup

__all__ = ["Start", "folder_of", "run_plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start of a run: new, fresh or resumed."""

    recipe: str
    """The resolved recipe as text, kept in the folder."""
    folder: Path
    """The plan's paths are relative to it."""
    resume: Plan | None = None
    """The plan of the run that is to be resumed, from the recipe in its folder; None for a new run."""
    fresh: bool = False
    resume_command: str = ""
    """What a person types to continue the run, shown where it has not finished."""


def folder_of(plan: Plan, cwd: Path) -> Path:
    """Return the folder of a run; the runs of a matrix have one each."""
    choices = "-".join(f"{key.rsplit('.', 1)[-1]}={value}" for key, value in plan.choices.items())
    name = f"{plan.name}--{_make_safe_name(choices)}" if choices else plan.name
    return cwd / plan.output / name


def _make_safe_name(text: str) -> str:
    plain = "".join(c if c.isalnum() or c in "=.,_-" else "_" for c in text)
    if len(plain) <= 80:
        return plain
    return f"{plain[:60]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def run_plan(
    plan: Plan,
    root: Path,
    start: Start,
    *,
    terminal: Terminal,
    environ: Mapping[str, str],
    clock: Callable[[], float],
    wall_clock: Callable[[], float],
) -> RunOutcome:
    """Train, with a report on the terminal."""
    text = dump_json(plan)
    with on_disk("start"):
        _check_room(plan, root)
        folder = _open_folder(root, plan, text, start, _manifest(plan, text, start.folder, wall_clock()))
    try:
        reporter = open_fanout(plan, root, terminal, environ, clock, wall_clock, recipe=start.recipe)
        stop, ending, reason = StopSignal(), "failed", ""
        anchored = anchor_paths(plan, str(start.folder))
        with handle_signals(stop, reporter.note):
            try:
                outcome = asyncio.run(_run(anchored, folder, reporter, environ, clock, wall_clock, stop))
                ending, reason = outcome.kind.value, outcome.reason
                return replace(outcome, reason=redact(outcome.reason, environ, list_variables(plan)))
            except RunError as error:
                error.args = (redact(str(error), environ, list_variables(plan)),)
                reason = str(error)
                raise
            finally:
                ending = "interrupted" if stop.ending else ending
                reporter.event(EventKind.END, reason, outcome=ending)
                reporter.close(summarise_run(root, ending, start.resume_command), failed=ending == "failed")
    finally:
        folder.close()


_COUNTED = (CHECKPOINTS, "weights", "references", START)
"""Parts of a run folder that are in the plan's estimate."""


def _check_room(plan: Plan, root: Path) -> None:
    """Refuse to start where the disk has no room for what the run keeps, less what a resumed run already holds."""
    needed = sum(item.bytes for item in plan.budget.disk if item.use not in (DiskUse.EPISODES, DiskUse.EVALUATIONS))
    place = next(each for each in (root, *root.parents) if each.exists())
    held = sum(path.stat().st_size for name in _COUNTED for path in (root / name).rglob("*") if path.is_file())
    free = shutil.disk_usage(place).free
    if needed > free + held:
        raise RunError(
            f"start: the run folder takes up to {needed:,} bytes, and '{place}' has {free:,} free: free space, set "
            "'output' to a folder on another disk, or lower 'checkpoint.keep' or 'checkpoint.keep_exports'"
        )


def _open_folder(root: Path, plan: Plan, text: str, start: Start, manifest: Mapping[str, object]) -> RunFolder:
    if start.resume is None:
        return RunFolder.start(root, text, start.recipe, manifest, fresh=start.fresh)
    space = RunFolder.resume(root)
    try:
        _refuse_another(RunReader(root), start.resume, plan, manifest)
        space.describe(text, start.recipe, manifest)
    except BaseException:
        space.close()
        raise
    return space


def _refuse_another(stored: RunReader, then: Plan, now: Plan, manifest: Mapping[str, object]) -> None:
    if not can_resume(then, now):
        listed = "".join(f"\n  {each}" for each in list_differences(then, now)[:_LISTED])
        raise FolderError(
            f"'{stored.root}' holds a run of another plan: resume it by its own recipe, with "
            f"'agym run {shlex.quote(str(stored.root))} --resume', or use --fresh{listed}"
        )
    before = stored.manifest
    # version 0.1.0 recorded none, and had the first of each
    then_presets = before.get("presets", {})
    for name, version in _preset_versions(now).items():
        if (recorded := then_presets.get(name, 1)) != version:
            raise FolderError(
                f"'{stored.root}' holds a run by version {recorded} of '{name}', and version {version} "
                f"sets other values: resume it with agym {before.get('agym', '0.1.0')}, or use --fresh"
            )
    is_hashed = "decisive_sha256" in before and before.get("agym") == manifest["agym"]
    # the recipe keeps references to environment variables, so that both plans have their current values
    if is_hashed and b"${env:" in stored.recipe and before["decisive_sha256"] != manifest["decisive_sha256"]:
        raise FolderError(
            f"'{stored.root}' holds a run with other values of the environment variables in its recipe: "
            "set them as they were, or use --fresh"
        )


_LISTED = 20
"""Differences that are shown."""


async def _run(
    plan: Plan,
    folder: RunFolder,
    reporter: Fanout,
    environ: Mapping[str, str],
    clock: Callable[[], float],
    wall_clock: Callable[[], float],
    stop: StopSignal,
) -> RunOutcome:
    connector = EnvConnector(folder.root / "logs", environ, reporter.note, make_deadlines(plan.rollout))
    judges = JudgeClient(plan, folder.root / JUDGE, connector.read_secret)
    with on_disk("start"):
        workers = await _LAUNCHERS[Launcher(plan.placement.launcher)](
            plan, folder.root, connector, clock, reporter.phase
        )
    stop.loop = asyncio.get_running_loop()
    try:
        engine = Engine(
            plan,
            folder,
            workers,
            reporter,
            clock,
            stop,
            lambda: connector.num_troubles,
            judges,
            wall_clock=wall_clock,
        )
        return await engine.run()
    finally:
        stop.loop = None
        await judges.close()
        await workers.close()


_Launch: TypeAlias = Callable[
    [Plan, Path, EnvConnector, Callable[[], float], Callable[[str], None]], Awaitable[WorkerGroup]
]
_LAUNCHERS: Mapping[Launcher, _Launch] = {
    Launcher.INLINE: inline.launch_inline,
    Launcher.RAY: ray.launch_ray,
}


def _describe_pretrained(plan: Plan) -> dict[str, object]:
    """Of a model that we name, the weights that its name means; those of any model are hashed when it is found."""
    model = list_pretrained().get(plan.model.path or "")
    return {} if model is None else {"pretrained": {"name": model.name, "weights_sha256": model.weights_sha256}}


def _preset_versions(plan: Plan) -> dict[str, int]:
    used = {stage.settings.algorithm.use for stage in plan.stages}
    return {use.value: load_preset(use).version for use in sorted(used)}


def _manifest(plan: Plan, text: str, folder: Path, now: float) -> dict[str, object]:
    return {
        "agym": __version__,
        "plan_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "recipe_sha256": plan.recipe_sha256,
        "decisive_sha256": decisive_sha256(plan),
        "recipe_folder": str(folder),
        "name": plan.name,
        "seed": plan.seed,
        "presets": _preset_versions(plan),
        "choices": dict(plan.choices),
        **_describe_pretrained(plan),
        "started_at": now,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": {name: found for name, found in installed_versions(ENGINE_PACKAGES).items() if found},
    }
