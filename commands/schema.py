"""`agym schema [NAME] [--field KEY]`: a JSON Schema, or the meaning of one key of a recipe. Writes nothing."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from ..dsl.publish.reference_docs import UnknownKey, describe_key
from ..files import PACKAGE
from .invocation.shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "run", "schema_names", "schema_path"]

FOLDER = PACKAGE / "schemas"
RECIPE = "recipe"
ALGORITHM = "algorithm.use"


def schema_names() -> tuple[str, ...]:
    """`recipe`, `plan`, ...: every NAME of `schemas/NAME.v1.json`."""
    return tuple(sorted(file.name.split(".", 1)[0] for file in FOLDER.glob("*.v1.json")))


def schema_path(name: str) -> Path:
    return FOLDER / f"{name}.v1.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default=RECIPE, choices=schema_names(), help="schema (default: recipe)")
    parser.add_argument("--field", metavar="KEY", help="explain a key, such as algorithm.kl")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    if arguments.field is None:
        shell.out.write(schema_path(arguments.name).read_text(encoding="utf-8"))
        return Exit.RIGHT
    if arguments.name != RECIPE:
        raise UsageError(f"--field explains keys of a recipe, not of '{arguments.name}'")
    shell.out.write(_explain(arguments.field, shell.width))
    return Exit.RIGHT


def _explain(key: str, width: int) -> str:
    try:
        text = describe_key(key)
    except UnknownKey as error:
        raise UsageError(str(error)) from error
    return text + _algorithms(width) if key.endswith(ALGORITHM) else text


def _setting(key: str, value: str, source: str, width: int) -> list[str]:
    """What a preset sets, and on the same line or the next where that is from."""
    head = f"      {key}: {value}"
    if len(head) + 2 + len(source) <= width:
        return [f"{head}  {source}"]
    return [head, *textwrap.wrap(source, width, initial_indent=" " * 8, subsequent_indent=" " * 8)]


def _algorithms(width: int) -> str:
    from ..dsl.check.presets import load_presets

    lines = ["  values"]
    for preset in load_presets().values():
        head, text = f"    {preset.name:<14}", f"{preset.summary} From: {preset.source}."
        lines += textwrap.wrap(text, width, initial_indent=head, subsequent_indent=" " * len(head))
        lines += [line for key, value in preset.settings() for line in _setting(key, value, preset.sources[key], width)]
    return "".join(f"{line}\n" for line in lines)
