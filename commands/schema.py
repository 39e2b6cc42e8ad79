"""`agym schema [NAME] [--field KEY]`: a JSON Schema, or what one key of a recipe means. Writes nothing."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..files import PACKAGE
from ..reporters.field_doc import UnknownField, field_doc
from .shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "run", "schema_file", "schema_names"]

FOLDER = PACKAGE / "schemas"


def schema_names() -> tuple[str, ...]:
    """`recipe`, `plan`, ...: what `schemas/NAME.v1.json` there is."""
    return tuple(sorted(file.name.split(".", 1)[0] for file in FOLDER.glob("*.v1.json")))


def schema_file(name: str) -> Path:
    return FOLDER / f"{name}.v1.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="recipe", choices=schema_names(), help="which (default: recipe)")
    parser.add_argument("--field", metavar="KEY", help="what a key means, such as algorithm.kl")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    text = schema_file(arguments.name).read_text(encoding="utf-8")
    if arguments.field is None:
        shell.out.write(text)
        return Exit.RIGHT
    shell.out.write(_documentation(json.loads(text), arguments.field, shell.width))
    return Exit.RIGHT


def _documentation(schema: Any, key: str, width: int) -> str:
    try:
        return field_doc(schema, key, width)
    except UnknownField as error:
        raise UsageError(str(error)) from error
