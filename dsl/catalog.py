"""What a recipe may name besides the language itself: environments, sinks, harnesses; handed in from outside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from typing import Any

from .frozen import frozen

__all__ = ["CODE_FILE", "DATA_FILE", "Catalog", "EnvironmentInfo", "RowCheck", "SeatOption", "SinkInfo", "make_info"]

DATA_FILE, CODE_FILE = "env.json", "env.py"
"""What describes an environment, and what makes it, in its folder."""

RowCheck = Callable[[str], Iterable[tuple[int, str]]]
"""The number of each invalid line of a text, and what is wrong with it."""


@frozen
class SeatOption:
    """An option that sets who plays other seats."""

    option: str
    models: tuple[str, ...]
    """Its values, alone or in a list, that name models of the run."""


@frozen
class EnvironmentInfo:
    """A registered environment, as far as a recipe can be checked against it."""

    name: str
    summary: str
    splits: Mapping[str, int | None]
    """Named splits and how many tasks each has; None where that depends on options or data."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of each option, by name."""
    required: tuple[str, ...] = ()
    """Options that it cannot do without."""
    extra: str | None = None
    """The install extra that brings what it needs."""
    rows: Mapping[str, RowCheck] = field(default_factory=dict)
    """For options that name a file with a row of data in each line: what is wrong with a text of such rows."""
    judged: bool = False
    """May leave questions about an episode to the recipe's judge."""
    fixed_solutions: bool = False
    """Its expert has a solution from the start of a task, and none from where a random action led."""
    seats: SeatOption | None = None
    """None where it has no seats that models of the run play."""
    light: bool = False
    """Cheap enough to run in the trainer's process."""

    @property
    def path_options(self) -> Collection[str]:
        """Options that name a file or folder."""
        return [name for name, schema in self.options.items() if schema.get("format") == "path"]

    def seat_models(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Models of the run that have a seat in it with these options."""
        if self.seats is None:
            return ()
        value = options.get(self.seats.option)
        given = value if isinstance(value, tuple | list) else (value,)
        return tuple(model for model in self.seats.models if model in given)


def make_info(data: Mapping[str, Any]) -> EnvironmentInfo:
    """What an `env.json` says about its environment; a ValueError, KeyError or TypeError if it says too little."""
    known = {name: data[name] for name in ("options", "extra", "judged", "fixed_solutions", "light") if name in data}
    if "seats" in data:
        known["seats"] = SeatOption(option=data["seats"]["option"], models=tuple(data["seats"]["models"]))
    required = tuple(data["required"]) if "required" in data else ()
    if not all("description" in data["options"][name] for name in required):
        raise ValueError("an option that is required has no description")
    return EnvironmentInfo(
        name=data["name"], summary=data["summary"], splits=data["splits"], required=required, **known
    )


@frozen
class SinkInfo:
    """A registered sink of metrics, as far as a recipe can be checked against it."""

    name: str
    summary: str
    settings: tuple[str, ...] | None = None
    """Keys of its entry in `logging` that it reads, besides `use`; None where that is not known, as for a plugin."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of each option, by name."""
    variables: tuple[str, ...] = ()
    """Environment variables that must be set, unless `offline` is."""
    extra: str | None = None
    """The install extra that brings what it needs."""
    packages: tuple[str, ...] = ()
    """Packages that it needs; any one of them will do."""
    factory: str = ""
    """`module:function` that opens it, imported when a run begins."""


def _count_none(_name: str, _options: Mapping[str, Any]) -> Mapping[str, int]:
    return {}


@frozen
class Catalog:
    """Everything a recipe may name."""

    environments: Mapping[str, EnvironmentInfo] = field(default_factory=dict)
    sinks: Mapping[str, SinkInfo] = field(default_factory=dict)
    harnesses: Mapping[str, str] = field(default_factory=dict)
    """Agents of installed packages, with a summary of each."""
    count_tasks: Callable[[str, Mapping[str, Any]], Mapping[str, int]] = _count_none
    """How many tasks the splits of an environment have with these options, as far as that is known."""
    computes_bf16: Callable[[], bool] = lambda: False
    """Whether this machine's CPU computes in bf16; one that does not is many times slower in it than in fp32."""

    def count_split(self, environment: str | None, split: str, options: Mapping[str, Any]) -> int | None:
        """Return how many tasks a split of an environment has; None where that is not known."""
        info = self.environments.get(environment or "")
        if info is None:
            return None
        return info.splits.get(split) or self.count_tasks(info.name, options).get(split)
