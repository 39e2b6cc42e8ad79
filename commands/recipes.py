"""`agym recipes`: the shipped recipes, each with its purpose."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping

from ..files import SHIPPED, is_base, shipped_names
from .invocation.shell import Exit, Shell

__all__ = ["add_arguments", "read_header", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="text", help="output format (default: text)")
    parser.add_argument("--bases", action="store_true", help="also list recipes that exist only to be extended")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    names = (name for name in shipped_names() if arguments.bases or not is_base(f"{name}.yaml"))
    shell.out.write(FORMATS[arguments.format]([_read_shipped(name) for name in names]))
    return Exit.RIGHT


def read_header(text: str) -> Mapping[str, str]:
    """Read `# Purpose: ...` and its like before the first key; a comment line without a keyword continues the last."""
    found: dict[str, str] = {}
    word = ""
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        head, colon, rest = line.removeprefix("#").strip().partition(":")
        if colon and head.isidentifier():
            word = head.lower()
            found[word] = rest.strip()
        elif word:
            found[word] += f" {line.removeprefix('#').strip()}"
    return found


def _read_shipped(name: str) -> dict[str, str]:
    found = read_header((SHIPPED / f"{name}.yaml").read_text(encoding="utf-8"))
    return {"name": name, "purpose": found.get("purpose", ""), "cost": found.get("cost", "")}


def _text(recipes: list[dict[str, str]]) -> str:
    column = max((len(each["name"]) for each in recipes), default=0) + 2
    return "".join(f"{each['name']:<{column}}{each['purpose']}".rstrip() + "\n" for each in recipes)


def _json(recipes: list[dict[str, str]]) -> str:
    return json.dumps(recipes, indent=2, ensure_ascii=False) + "\n"


FORMATS: Mapping[str, Callable[[list[dict[str, str]]], str]] = {"text": _text, "json": _json}
