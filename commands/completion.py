"""`agym completion bash|zsh|fish`: a completion script, generated from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from ..reporters.completion import CommandSpec, bash, fish, zsh
from . import COMMANDS
from .invocation.shell import Exit, Shell
from .parser import build_parser

__all__ = ["add_arguments", "command_specs", "run"]

SCRIPTS: Mapping[str, Callable[[tuple[CommandSpec, ...]], str]] = {"bash": bash, "fish": fish, "zsh": zsh}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SCRIPTS, help="the shell")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    shell.out.write(SCRIPTS[arguments.shell](command_specs(build_parser(COMMANDS))))
    return Exit.RIGHT


def command_specs(parser: argparse.ArgumentParser) -> tuple[CommandSpec, ...]:
    """Commands and options of a parser, as data."""
    subparsers = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return tuple(_spec(name, one) for name, one in subparsers.choices.items())


def _spec(name: str, parser: argparse.ArgumentParser) -> CommandSpec:
    options = [each for each in parser._actions if each.option_strings]
    words = [each for each in parser._actions if not each.option_strings]
    return CommandSpec(
        name=name,
        summary=COMMANDS[name],
        options={string: each.help or "" for each in options for string in each.option_strings},
        values={string: _choices(each) for each in options if each.nargs != 0 for string in each.option_strings},
        words=tuple(choice for each in words for choice in _choices(each)),
        files=any(each.choices is None for each in words),
    )


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ()))
