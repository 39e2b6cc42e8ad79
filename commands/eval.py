"""`agym eval RUN_FOLDER|RECIPE`: evaluates as the run itself does, without a learner. Writes only `--output`."""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TextIO

from .. import __version__
from ..dsl.check.paths import anchor_paths
from ..dsl.model.plan import Plan
from ..dsl.model.recipe import Eval
from ..dsl.publish.plan_json import to_json
from ..files import write_atomically
from .export import add_checkpoint
from .invocation.compiling import build_compiler, choose, open_stored
from .invocation.engines import prepare_process
from .invocation.requirements import check_installed
from .invocation.shell import Exit, Shell, UsageError
from .invocation.stored_code import refuse_stored_code

if TYPE_CHECKING:
    from ..runtime.progress import Progress
    from ..runtime.reporting import EventKind, MetricsRow
    from ..runtime.rollout.episode import Episode
    from ..runtime.steps.evaluate import Evaluation
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

    output = shell.cwd / arguments.output if arguments.output is not None else None
    # before anything is played
    if output is not None and not output.parent.is_dir():
        raise UsageError(f"the folder {output.parent} is not there")
    if output is not None and os.path.lexists(output):
        raise UsageError(f"{output} is there already: name a new file")
    root = shell.cwd / arguments.target
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
    evaluation = _evaluate(exam, shell)
    turns = _horizons(evaluation.episodes)
    from ..reporters.evaluation import evaluation_table  # imports rich, needed only now

    shell.out.write(evaluation_table(evaluation.row, turns, shell.style))
    if output is not None:
        written = _format_json(arguments.target, exam, evaluation.row, turns)
        write_atomically(output, redact(written, shell.environ, named))
        shell.out.write(f"wrote {arguments.output}\n")
    return Exit.RIGHT


# --- what is evaluated ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exam:
    """A model, and the stage whose settings it plays with."""

    plan: Plan
    """Names the model by its path."""
    progress: Progress
    step: int | None
    """Step of the run at which the model was saved."""


def _exam(arguments: argparse.Namespace, shell: Shell, archive: RunReader | None, plan: Plan) -> _Exam:
    from ..runtime.progress import Progress

    if arguments.model is not None:
        folder = shell.cwd / os.path.expanduser(arguments.model)
        plan = _with_model(plan, str(folder) if folder.is_dir() else arguments.model)
    elif archive is not None:
        return _of_run(arguments, archive, plan)
    elif arguments.checkpoint is not None:
        raise UsageError(f"'{arguments.target}' is a recipe: --checkpoint needs the folder of a run")
    elif plan.model.init is not None:
        raise UsageError(
            f"'{arguments.target}' makes its model from scratch: name the folder of a run of it, or --model FOLDER"
        )
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
    return _Exam(plan=_with_model(plan, str(kept.model)), progress=progress, step=kept.step)


def _with_model(plan: Plan, path: str) -> Plan:
    return replace(plan, model=replace(plan.model, path=path, init=None, revision=None))


def _evaluate(exam: _Exam, shell: Shell) -> Evaluation:
    from ..runtime.evaluate_checkpoint import evaluate_checkpoint

    reporter = _EvalReporter(shell.err)
    try:
        return evaluate_checkpoint(exam.plan, exam.progress, reporter, environ=shell.environ, clock=time.perf_counter)
    finally:
        reporter.close()


class _EvalReporter:
    """Counts episodes on a terminal; writes notes everywhere."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._live = err.isatty()
        self._played = 0

    def phase(self, name: str) -> None: ...

    def row(self, row: MetricsRow) -> None: ...

    def sample(self, name: str, total_step: int, episodes: Sequence[Episode]) -> None: ...

    def episode(self, episode: Episode) -> None:
        self._played += 1
        if self._live:
            self._err.write(f"\r{self._played} episodes")

    def note(self, text: str) -> None:
        self._err.write(f"agym eval: {text}\n")

    def event(self, kind: EventKind, text: str, **facts: int | str) -> None:
        self.note(text)

    def close(self) -> None:
        if self._live and self._played:
            self._err.write("\n")


# --- results --------------------------------------------------------------------------------------------------


def _horizons(episodes: tuple[Episode, ...]) -> Mapping[str, int]:
    """Longest horizon of each environment, that of its metrics without `@turns`."""
    found: dict[str, int] = {}
    for episode in episodes:
        name = episode.task.environment
        found[name] = max(episode.horizon, found.get(name, 0))
    return found


def _format_json(target: str, exam: _Exam, row: MetricsRow, turns: Mapping[str, int]) -> str:
    data = {
        "agym": __version__,
        "target": target,
        "model": exam.plan.model.path,
        "step": exam.step,
        "recipe_sha256": exam.plan.recipe_sha256,
        "eval": to_json(exam.plan.eval or Eval()),
        "turns": dict(turns),
        "results": {key: value for key, value in row.items() if key.startswith("eval/")},
    }
    return json.dumps(data, indent=2) + "\n"
