"""`agym completion bash|zsh|fish`: a completion script with all words written out: no key press starts a program."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from . import COMMANDS
from .invocation.parser import build_parser
from .invocation.shell import Exit, Shell

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "fish", "zsh"), help="the shell")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    import shtab

    parser = build_parser(COMMANDS)
    for action in _walk_actions(parser):
        # where no words are known, the shell completes file names
        if action.choices is None and action.nargs != 0:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    shell.out.write(shtab.complete(parser, arguments.shell).rstrip("\n") + "\n")
    return Exit.RIGHT


def _walk_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _walk_actions(below)
