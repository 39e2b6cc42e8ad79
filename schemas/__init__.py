"""The published JSON Schemas, as data: editors read the files, the checks read them through here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Schema", "load", "recipe_v1"]

Schema = Mapping[str, Any]


def load(name: str) -> dict[str, Any]:
    """A schema by the name of its file, without `.json`; a copy of one's own."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))
    return schema


@cache
def recipe_v1() -> dict[str, Any]:
    """The schema of recipes; shared, so not to be changed."""
    return load("recipe.v1")
