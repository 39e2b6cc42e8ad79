"""The parser of the command line, built from the commands; each command's arguments cost its imports."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Collection
from typing import Any, NoReturn

from ... import __version__
from .. import COMMANDS, FOLDERS

__all__ = ["Parser", "build_parser", "import_command"]

EPILOG = """\
exit codes: 0 success, 1 wrong recipe, 2 wrong usage, 3 failed run, 4 run stopped by a guard

A RECIPE is a file, or the name of one of `agym recipes`. Start with: agym new my-run"""


_SETTING = re.compile(r"unrecognized arguments: (?=--|\S+=)-*([a-z][\w.\[\]]*)[ =]([^-\s]\S*)")


class Parser(argparse.ArgumentParser):
    """argparse, with a suggestion for an unknown word."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}{_advise(message)}\n{self.prog}: try '{self.prog} --help'\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            from ...dsl.suggest import did_you_mean, quote

            known = tuple(map(str, action.choices))
            hint = did_you_mean(str(value), known) or f"known: {', '.join(known)}"
            raise argparse.ArgumentError(action, f"{quote(str(value))} is not one of them; {hint}")


def _advise(message: str) -> str:
    """For a key of the recipe that stands where an option would."""
    setting = _SETTING.match(message)
    return f"; a key of the recipe is set by --set {setting[1]}={setting[2]}" if setting else ""


def build_parser(chosen: Collection[str]) -> argparse.ArgumentParser:
    """Parser of all commands, with the arguments of those in `chosen`."""
    top = Parser(
        prog="agym",
        description="One recipe file describes how an agent is trained; agym checks it, plans it and runs it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"agym {__version__}")
    commands = top.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    for name, summary in COMMANDS.items():
        description = f"{summary[:1].upper()}{summary[1:]}."
        one = commands.add_parser(name, help=summary, description=description, allow_abbrev=False)
        if name in chosen:
            import_command(name).add_arguments(one)
    return top


def import_command(name: str) -> Any:
    folder = f".{FOLDERS[name]}" if name in FOLDERS else ""
    return importlib.import_module(f".{folder}.{name}", __package__)
