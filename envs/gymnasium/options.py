"""What a user may choose about Gymnasium: strict, every mistake named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any

from ..errors import BadOption
from ..protocol import Json

__all__ = ["Options", "read_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    id: str
    """As registered with Gymnasium, such as `FrozenLake-v1`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `gymnasium.make`."""
    seeds: int = 1000
    """Tasks of each split, one per seed."""
    returns: tuple[float, float] | None = None
    """The return that scores 0 and the one that scores 1, where they are not known or should be others."""
    max_steps: int | None = None
    """Actions in one episode, at the most, understood or not; the environment's own limit stays in force."""


def read_options(options: Mapping[str, Json]) -> Options:
    for name in options:
        if name not in _READERS:
            close = get_close_matches(name, _READERS, n=1)
            raise BadOption(f"gymnasium has no option '{name[:40]}'{f'; did you mean {close[0]!r}?' if close else ''}")
    if "id" not in options:
        raise BadOption("gymnasium needs the option 'id', such as FrozenLake-v1")
    read: dict[str, Any] = {name: _READERS[name](value) for name, value in options.items()}
    return Options(**read)


def _id(value: Json) -> str:
    if not isinstance(value, str) or not value:
        raise BadOption("gymnasium option 'id' must be the name of an environment")
    return value


def _kwargs(value: Json) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise BadOption("gymnasium option 'kwargs' must be a table of arguments")
    return {name: _plain(each) for name, each in value.items()}


def _plain(value: Json) -> Any:
    """Lists and tables of the kinds that environments expect."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _whole(option: str, value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 1_000_000:
        raise BadOption(f"gymnasium option '{option}' must be a whole number from 1 to 1000000")
    return value


def _returns(value: Json) -> tuple[float, float]:
    numbers = [each for each in value if type(each) in (int, float)] if isinstance(value, list | tuple) else []
    if len(numbers) != 2 or len(numbers) != len(value) or not numbers[0] < numbers[1]:  # type: ignore[arg-type]
        raise BadOption("gymnasium option 'returns' must be two numbers, the worst return and the best")
    return float(numbers[0]), float(numbers[1])


_READERS: Mapping[str, Callable[[Json], object]] = {
    "id": _id,
    "kwargs": _kwargs,
    "seeds": partial(_whole, "seeds"),
    "returns": _returns,
    "max_steps": partial(_whole, "max_steps"),
}
