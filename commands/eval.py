"""`agym eval RUN_FOLDER|RECIPE`: evaluates as the run itself does, without a learner. Writes only `--output` and
`--episodes`. The first signal ends it; what was played by then is shown, and called partial."""

from __future__ import annotations

import argparse
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..dsl.check.paths import anchor_paths
from ..dsl.model.plan import Plan
from ..dsl.model.recipe import Eval
from ..dsl.publish.plan_json import to_json
from ..files import write_atomically
from ..reporters.quantity import plural
from .export import add_checkpoint
from .invocation.compiling import build_compiler, choose, open_stored
from .invocation.engines import check_model_folder, prepare_process
from .invocation.requirements import check_installed
from .invocation.shell import Exit, Shell, UsageError
from .invocation.stored_code import refuse_stored_code

if TYPE_CHECKING:
    from ..runtime.learning.metrics import EvalOutcomes
    from ..runtime.progress import Progress
    from ..runtime.reporting import MetricsRow
    from ..runtime.steps.evaluate import Play
    from ..runtime.storage.run_reader import RunReader

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="the folder of a run, also of one under way, or a recipe")
    what = parser.add_mutually_exclusive_group()
    add_checkpoint(what)
    what.add_argument("--model", metavar="MODEL", help="evaluate this model folder or hub id instead")
    parser.add_argument("-k", "--samples", type=int, metavar="N", help="episodes per task, for avg@k and pass@k")
    parser.add_argument("--temperature", type=float, metavar="T", help="sampling temperature; 0 is greedy")
    parser.add_argument("--turns", type=_turns, metavar="N,N,...", help="horizon, or several")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N tasks of each environment")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of the recipe")
    parser.add_argument("--run", type=int, metavar="N", help="which run of a matrix, counted from 1")
    parser.add_argument("--output", metavar="FILE", help="also write the numbers as JSON to a new file")
    parser.add_argument(
        "--episodes", metavar="FOLDER", help="also save the episodes and the numbers in a new folder, for 'agym view'"
    )


def _turns(word: str) -> str:
    if re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", word):
        return f"[{word}]"
    raise argparse.ArgumentTypeError(f"expected numbers with commas between them, as in 4,8,12, got '{word[:40]}'")


_KEYS = ("samples", "temperature", "turns", "limit")
"""Keys of `eval` that have flags."""


def _settings(arguments: argparse.Namespace) -> tuple[str, ...]:
    given = {key: value for key in _KEYS if (value := getattr(arguments, key)) is not None}
    if given.get("temperature") == 0:
        # another greedy episode would be the same
        given = {"samples": 1, "greedy": "false"} | given
    return (*arguments.set, *(f"eval.{key}={value}" for key, value in given.items()))


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..runtime.storage.run_reader import RunReader, is_run

    output, saved = (
        _new_place(shell, name, what) for name, what in ((arguments.output, "file"), (arguments.episodes, "folder"))
    )
    if output is not None and output == saved:
        raise UsageError("--output and --episodes name the same place: --episodes holds the numbers as well")
    root = shell.cwd / arguments.target
    if (root / "config.json").is_file() and not is_run(root):
        raise UsageError(f"'{arguments.target}' is a model: name a recipe, and --model {arguments.target}")
    archive = RunReader(root) if is_run(root) else None
    text = None if archive is None else open_stored(arguments.target, archive)
    compiler = build_compiler(shell, _settings(arguments))
    variant = choose(compiler.runs(arguments.target, text, on_disk=archive is None), arguments.target, arguments.run)
    check_installed(variant.plan, compiler.catalog, trains=False)
    if archive is not None:
        refuse_stored_code(variant.plan, archive.root, compiler.settings)
    exam = _exam(arguments, shell, archive, anchor_paths(variant.plan, variant.folder))
    from ..runtime.sinks.fanout import list_variables, redact

    named = list_variables(variant.plan)
    prepare_process(exam.plan, shell.environ)
    published = False
    lock = threading.Lock()

    def publish(result: _Result) -> None:
        """Show and write the finished episodes; a second call does nothing."""
        nonlocal published
        with lock:
            if published:
                return
            published = True
            _show(result, exam, shell)
            # before anything that may fail
            shell.out.flush()
            written = redact(_format_json(arguments.target, exam, result), shell.environ, named)
            if output is not None:
                write_atomically(output, written)
                shell.out.write(f"wrote {arguments.output}\n")
            if saved is not None:
                _save_episodes(saved, result, exam, written)
                shell.out.write(f"wrote {arguments.episodes}\n")
            shell.out.flush()

    result = _evaluate(exam, shell, publish)
    publish(result)
    return Exit.INTERRUPTED if result.row is None else Exit.RIGHT


def _new_place(shell: Shell, name: str | None, what: str) -> Path | None:
    """Where to write, checked before anything is played."""
    if name is None:
        return None
    place = Path(os.path.normpath(shell.cwd / name))
    if not place.parent.is_dir():
        raise UsageError(f"the folder {place.parent} is not there")
    if not os.access(place.parent, os.W_OK):
        raise UsageError(f"the folder {place.parent} cannot be written to")
    if os.path.lexists(place):
        raise UsageError(f"{place} is there already: name a new {what}")
    return place


# --- what is evaluated ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exam:
    """A model, and the stage whose settings it plays with."""

    plan: Plan
    """Names the model by its path."""
    progress: Progress
    step: int | None
    """Step of the run at which the model was saved."""
    root: Path | None = None
    """Folder of that run."""


def _exam(arguments: argparse.Namespace, shell: Shell, archive: RunReader | None, plan: Plan) -> _Exam:
    from ..runtime.progress import Progress

    if arguments.model is not None:
        folder = shell.cwd / os.path.expanduser(arguments.model)
        if folder.is_dir():
            check_model_folder(folder, arguments.model)
        plan = _with_model(plan, str(folder) if folder.is_dir() else arguments.model)
    elif archive is not None:
        return _of_run(arguments, archive, plan)
    elif arguments.checkpoint is not None:
        raise UsageError(f"'{arguments.target}' is a recipe: --checkpoint needs the folder of a run")
    elif plan.model.init is not None:
        raise UsageError(
            f"'{arguments.target}' makes its model from scratch: name the folder of a run of it, or --model FOLDER"
        )
    elif plan.model.lora is not None and plan.model.lora.path is not None:
        raise UsageError(f"'{arguments.target}' begins with adapters: merge them, and name --model FOLDER")
    return _Exam(plan=plan, progress=Progress(stage=len(plan.stages) - 1), step=None)


def _of_run(arguments: argparse.Namespace, archive: RunReader, plan: Plan) -> _Exam:
    from ..runtime.storage.run_folder import FolderError

    kept = archive.kept(arguments.checkpoint or "latest")
    if kept.model is None:
        raise FolderError(
            f"step {kept.step} holds only the learner's state: write its model with 'agym export {arguments.target} "
            f"--checkpoint {kept.step} FOLDER', then add --model FOLDER here"
        )
    archive.check(kept, trusted=plan.model.trust_remote_code)
    progress = archive.progress(kept, plan)
    progress.stage = min(progress.stage, len(plan.stages) - 1)
    return _Exam(plan=_with_model(plan, str(kept.model)), progress=progress, step=kept.step, root=archive.root)


def _with_model(plan: Plan, path: str) -> Plan:
    return replace(plan, model=replace(plan.model, path=path, init=None, revision=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What was played."""

    row: MetricsRow | None
    """None where it was interrupted."""
    plays: tuple[Play, ...]
    missing: int = 0
    """Episodes of plays that were started and not finished."""


def _evaluate(exam: _Exam, shell: Shell, publish: Callable[[_Result], None]) -> _Result:
    """Play the evaluation; `publish` is called only if an interrupted one takes too long to end."""
    from ..runtime.evaluate_checkpoint import evaluate_checkpoint
    from ..runtime.interrupts import StopSignal, handle_signals
    from .invocation.eval_progress import EvalProgress

    progress = EvalProgress(shell.err, time.perf_counter)

    def played() -> _Result:
        return _Result(row=None, plays=progress.plays, missing=progress.missing)

    def publish_in_time() -> None:
        try:
            publish(played())
        except OSError as error:
            shell.err.write(f"agym eval: could not write everything: {error}\n")
            shell.err.flush()

    with handle_signals(StopSignal(), progress.note, before_exit=publish_in_time):
        try:
            evaluation = evaluate_checkpoint(
                exam.plan,
                exam.progress,
                progress,
                progress,
                environ=shell.environ,
                clock=time.perf_counter,
                root=exam.root,
            )
            return _Result(row=evaluation.row, plays=evaluation.plays)
        except KeyboardInterrupt:
            return played()
        finally:
            progress.close()


def _show(result: _Result, exam: _Exam, shell: Shell) -> None:
    from ..reporters.evaluation import evaluation_table, outcomes_table  # import rich, needed only now

    if result.row is None:
        shell.err.write(
            f"agym eval: interrupted: {plural(result.missing, 'episode')} unfinished, what follows is partial\n"
        )
    else:
        shell.out.write(evaluation_table(result.row, _horizons(result.plays), shell.style) + "\n")
    if result.plays:
        lines = [
            (each.environment, each.horizon, each.mode.value, outcomes) for each, outcomes in _outcomes(result, exam)
        ]
        shell.out.write(outcomes_table(lines, shell.style))


def _outcomes(result: _Result, exam: _Exam) -> list[tuple[Play, EvalOutcomes]]:
    return [(each, each.outcomes(exam.plan, exam.plan.eval or Eval())) for each in result.plays]


def _save_episodes(folder: Path, result: _Result, exam: _Exam, written: str) -> None:
    """Write the numbers, and the episodes as a run folder has those of an evaluation."""
    from ..runtime.steps.evaluate import play_entries
    from ..runtime.storage.episode_log import EpisodePurpose, episode_lines, episode_pictures
    from ..runtime.storage.episode_reader import EPISODES
    from ..runtime.storage.run_folder import write_pictures

    step, stage = exam.step or 0, exam.plan.stages[exam.progress.stage].settings.stage
    entries = play_entries(result.plays)
    lines = episode_lines(entries, purpose=EpisodePurpose.EVAL, total_step=step, stage=stage)
    (folder / EPISODES).mkdir(parents=True)
    write_pictures(folder / EPISODES, episode_pictures(entries))
    write_atomically(folder / EPISODES / f"step-{step:06d}-eval.jsonl", lines.decode())
    write_atomically(folder / "eval.json", written)


# --- results --------------------------------------------------------------------------------------------------


def _horizons(plays: Sequence[Play]) -> Mapping[str, int]:
    """Longest horizon of each environment, that of its metrics without `@turns`."""
    found: dict[str, int] = {}
    for play in plays:
        found[play.environment] = max(play.horizon, found.get(play.environment, 0))
    return found


def _format_json(target: str, exam: _Exam, result: _Result) -> str:
    data = {
        "agym": __version__,
        "target": target,
        "model": exam.plan.model.path,
        "step": exam.step,
        "recipe_sha256": exam.plan.recipe_sha256,
        "eval": to_json(exam.plan.eval or Eval()),
        "turns": dict(_horizons(result.plays)),
        "partial": result.row is None,
        "missing": result.missing,
        "results": {key: value for key, value in (result.row or {}).items() if key.startswith("eval/")},
        "outcomes": [
            {"environment": each.environment, "turns": each.horizon, "mode": each.mode.value, **asdict(outcomes)}
            for each, outcomes in _outcomes(result, exam)
        ],
    }
    return json.dumps(_without_nan(data), indent=2, allow_nan=False) + "\n"


def _without_nan(data: Any) -> Any:
    """What is not known is null: JSON has no NaN."""
    if isinstance(data, dict):
        return {key: _without_nan(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_without_nan(value) for value in data]
    return None if isinstance(data, float) and not isfinite(data) else data
