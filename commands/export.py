"""`agym export RUN_FOLDER OUTPUT`: a checkpoint as a model folder. Writes nothing but that folder."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import replace

from .. import __version__
from .invocation.compiling import build_compiler
from .invocation.engines import prepare_process
from .invocation.shell import Exit, Shell, UsageError
from .invocation.stored_code import code_refused

__all__ = ["add_arguments", "add_checkpoint", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN_FOLDER", help="the folder of a run, also of one under way")
    parser.add_argument("output", metavar="OUTPUT", help="the folder to write; it must not exist")
    add_checkpoint(parser)
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="let the recipe's 'model.trust_remote_code' take effect: run code that the model names",
    )


def add_checkpoint(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--checkpoint",
        type=_checkpoint,
        metavar="WHICH",
        help="latest, best, or a step by its number (default: latest)",
    )


def _checkpoint(word: str) -> str:
    if word in ("latest", "best") or (word.isascii() and word.isdigit()):
        return word
    raise argparse.ArgumentTypeError(f"expected latest, best, or the number of a step, got '{word[:40]}'")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..runtime.export import export
    from ..runtime.storage.run_reader import RunReader

    folder = shell.cwd / arguments.output
    if not folder.parent.is_dir():
        raise UsageError(f"the folder {folder.parent} is not there")
    archive = RunReader(shell.cwd / arguments.run)
    kept = archive.kept(arguments.checkpoint or "latest")
    without_secrets = replace(shell, environ=_with_placeholders(archive.recipe, shell.environ))
    plan = build_compiler(without_secrets).recompile(arguments.run, archive)
    if plan.model.trust_remote_code and not arguments.trust_remote_code:
        # nothing runs if a model is only copied
        if kept.model is None:
            raise code_refused("model.trust_remote_code", archive.root, "--trust-remote-code")
        plan = replace(plan, model=replace(plan.model, trust_remote_code=False))
    if kept.model is None:
        prepare_process(plan, shell.environ)
    export(archive, plan, kept, folder, __version__)
    shell.out.write(f"wrote step {kept.step} to {arguments.output}\n")
    return Exit.RIGHT


def _with_placeholders(recipe: bytes, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Variables that a recipe requires, set to references to themselves where they are not set: no secret is needed."""
    demanded = re.findall(r"\$\{env:(\w+)(?:\}|:\?)", recipe.decode(errors="replace"))
    return {name: f"${{env:{name}}}" for name in demanded} | dict(environ)
