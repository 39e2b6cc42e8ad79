"""What a user may choose about reasoning-gym: strict, every mistake named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from ..errors import BadOption
from ..protocol import Json

__all__ = ["Options", "read_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    dataset: str
    """Name of the generator, such as `basic_arithmetic`."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the generator."""
    size: int = 1000
    """Problems of each split."""


def read_options(options: Mapping[str, Json]) -> Options:
    for name in options:
        if name not in _READERS:
            close = get_close_matches(name, _READERS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise BadOption(f"reasoning_gym has no option '{name[:40]}'{hint}")
    if "dataset" not in options:
        raise BadOption("reasoning_gym needs the option 'dataset', the name of a generator such as basic_arithmetic")
    read: dict[str, Any] = {name: _READERS[name](value) for name, value in options.items()}
    return Options(**read)


def _dataset(value: Json) -> str:
    if not isinstance(value, str):
        raise BadOption("reasoning_gym option 'dataset' must be the name of a generator")
    return value


def _config(value: Json) -> dict[str, Any]:
    if not isinstance(value, Mapping) or {"seed", "size"} & value.keys():
        raise BadOption("reasoning_gym option 'config' must be a table of arguments, other than 'seed' and 'size'")
    return {name: _plain(each) for name, each in value.items()}


def _plain(value: Json) -> Any:
    """Lists and tables of the kinds that generators expect."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _size(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 1_000_000:
        raise BadOption("reasoning_gym option 'size' must be a whole number from 1 to 1000000")
    return value


_READERS: Mapping[str, Callable[[Json], object]] = {"dataset": _dataset, "config": _config, "size": _size}
