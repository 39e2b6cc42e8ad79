"""`agym export RUN_FOLDER OUTPUT`: a checkpoint as a model folder. Writes nothing but that folder."""

from __future__ import annotations

import argparse

from .. import __version__
from .invocation.engines import prepare_process
from .invocation.shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "add_checkpoint", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN_FOLDER", help="the folder of a run, also of one under way")
    parser.add_argument("output", metavar="OUTPUT", help="the folder to write; it must not exist")
    add_checkpoint(parser)


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
    from ..runtime.errors import RunError
    from ..runtime.storage.run_reader import RunReader

    folder = shell.cwd / arguments.output
    if not folder.parent.is_dir():
        raise UsageError(f"the folder {folder.parent} is not there")
    try:
        archive = RunReader(shell.cwd / arguments.run)
        kept = archive.kept(arguments.checkpoint or "latest")
        if kept.model is None:
            prepare_process(archive.plan, shell.environ)
        from ..runtime.export import export

        export(archive, kept, folder, __version__)
    except RunError as error:
        print(f"agym export: error: {error}", file=shell.err)
        return Exit.RUN_FAILED
    shell.out.write(f"wrote step {kept.step} to {arguments.output}\n")
    return Exit.RIGHT
