"""A new package with an environment that works and trains, to be changed into another: `agym envs new`."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from string import Template

__all__ = ["find_name_error", "package_name", "write_package"]

_TEMPLATE = Path(__file__).parent / "template"
_FILES: Mapping[str, str] = {
    "README.md": "README.md",
    "recipe.yaml": "recipe.yaml",
    "pyproject.toml": "pyproject.toml",
    "env.py": "$name/env.py",
    "env.json": "$name/env.json",
    "init.py": "$name/__init__.py",
    "test.py": "tests/test_$name.py",
}
"""Template and where it goes."""
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,39}")
_RESERVED = {"agym", "all", "env", "envs", "test", "tests"}


def package_name(name: str) -> str:
    """The package of an environment, whose folder may have '-' in its name."""
    return name.replace("-", "_")


def find_name_error(name: str, known: Collection[str]) -> str | None:
    """Why a name cannot be that of a new package, if it cannot."""
    if not _IDENTIFIER.fullmatch(name) or keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return (
            "a name is up to 40 lower-case letters, digits, '_' and '-', begins with a letter, and is no word of Python"
        )
    if name in known:
        return f"there is an environment called '{name}' already; 'agym envs list' shows all"
    if name in _RESERVED or name in sys.stdlib_module_names:
        return f"'{name}' is reserved"
    if find_spec(name) is not None:
        return f"there is a Python package called '{name}' already, which would be imported instead"
    return None


def write_package(name: str, folder: Path) -> tuple[Path, ...]:
    """Write the files into a folder that does not exist yet; return them relative to it."""
    words = {
        "name": name,
        "cls": "".join(part.capitalize() for part in name.split("_")) or name,
        "dist": name.replace("_", "-").rstrip("-"),
    }
    folder.mkdir()
    written = []
    for template, place in _FILES.items():
        file = folder / Template(place).substitute(words)
        file.parent.mkdir(exist_ok=True)
        text = (_TEMPLATE / f"{template}.txt").read_text("utf-8")
        file.write_text(Template(text).substitute(words), "utf-8")
        written.append(file.relative_to(folder))
    return tuple(written)
