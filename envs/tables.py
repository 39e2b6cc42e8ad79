"""Tables in the `data` folder of an environment: a head of lines that begin with `#`, then `name rest` in each line."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

__all__ = ["read_table", "write_table"]


def read_table(package: str, file: str) -> dict[str, str]:
    pairs = (line.partition(" ") for line in _lines(package, file) if line and not line.startswith("#"))
    return {name: rest for name, _, rest in pairs}


def write_table(package: str, file: str, rows: Mapping[str, str]) -> None:
    """Replace the rows; the head stays."""
    head = [line for line in _lines(package, file) if line.startswith("#")]
    text = "\n".join((*head, *(f"{name} {rest}".rstrip() for name, rest in rows.items()), ""))
    _path(package, file).write_text(text, "utf-8")


def _lines(package: str, file: str) -> list[str]:
    return _path(package, file).read_text("utf-8").splitlines()


def _path(package: str, file: str) -> Path:
    return Path(str(files(package))) / "data" / file
