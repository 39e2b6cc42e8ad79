"""Catalog of what a recipe may name on this machine: environments and sinks, our own and those of plugins.

Made from `envs/*/env.json`, the table of sinks and the metadata of installed packages; none of them is imported.
Packages are searched only when a recipe names what is not ours: that search costs more than the rest of a check.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .dsl.catalog import DATA_FILE, Catalog, EnvironmentInfo, SinkInfo, make_info
from .runtime.sinks.registry import GROUP as SINK_GROUP
from .runtime.sinks.registry import SINKS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["ROW_CHECKS", "BadEnvironment", "Registered", "catalog", "read_environment"]

V = TypeVar("V")
ENVS = Path(__file__).parent / "envs"
RELEASED = "ids.json"
ENVIRONMENT_GROUP = "agym.envs"
HARNESS_GROUP = "agym.harnesses"


class BadEnvironment(Exception):
    """An installed environment's data file that violates schemas/env.v1.json."""


ROW_CHECKS: Mapping[str, Mapping[str, str]] = {"mcp": {"tasks_file": "agym.envs.mcp.tasks:find_wrong_rows"}}
"""For options of our environments that name files of rows: their checkers, imported if a recipe names one."""


@dataclass(frozen=True)
class Registered(Mapping[str, V], Generic[V]):
    """Our own names, then those of plugins, searched only for a name that is not ours."""

    own: Mapping[str, V]
    plugins: Callable[[], Mapping[str, V]]

    def __getitem__(self, name: str) -> V:
        if name in self.own:
            return self.own[name]
        # a recipe that names none needs no search
        if not name:
            raise KeyError(name)
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self._found

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from (name for name in self._found if name not in self.own)

    def __len__(self) -> int:
        return len({*self.own, *self._found})

    @cached_property
    def _found(self) -> Mapping[str, V]:
        return self.plugins()


def catalog(envs: Path = ENVS) -> Catalog:
    """Everything that a recipe may name here."""
    own = {info.name: _with_rows(info) for info in map(read_environment, sorted(envs.glob(f"*/{DATA_FILE}")))}
    return Catalog(
        environments=Registered(own, partial(_find_plugins, ENVIRONMENT_GROUP, _from_metadata)),
        sinks=Registered(SINKS, partial(_find_plugins, SINK_GROUP, _sink)),
        harnesses=Registered({}, partial(_find_plugins, HARNESS_GROUP, _summary)),
        count_tasks=_count_released,
        computes_bf16=_computes_bf16,
    )


def _computes_bf16() -> bool:
    """Whether the CPU has instructions for products of bf16: AVX-512 BF16 or AMX on x86, bf16 on Arm."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = (line.partition(":") for line in islice(file, _LINES_OF_A_CORE))
            flags = {flag for name, _, text in lines if name.strip() in ("flags", "Features") for flag in text.split()}
    except OSError:  # not Linux: Apple's processors from the M2 on would, but fp32 is never wrong
        return False
    return not flags.isdisjoint(("avx512_bf16", "amx_bf16", "bf16"))


_LINES_OF_A_CORE = 64
"""All cores say the same."""


def _with_rows(info: EnvironmentInfo) -> EnvironmentInfo:
    checks = ROW_CHECKS.get(info.name, {})
    return replace(info, rows={option: partial(_check_rows, where) for option, where in checks.items()})


def _count_released(name: str, options: Mapping[str, Any]) -> Mapping[str, int]:
    """Tasks of our own environments at their release, whose ids have not changed since."""
    released = json.loads((ENVS / RELEASED).read_text(encoding="utf-8")).get(name, {"options": None})
    return {split: count for split, (count, _) in released["splits"].items()} if released["options"] == options else {}


def read_environment(file: Path) -> EnvironmentInfo:
    """Read one `env.json`; an error names the file."""
    try:
        return make_info(json.loads(file.read_text(encoding="utf-8")))
    except UnicodeDecodeError as error:
        raise BadEnvironment(f"{file} is not UTF-8: save it as that") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadEnvironment(f"{file} is not JSON: {error.msg[:1].lower()}{error.msg[1:]} ({place})") from error
    except RecursionError as error:
        raise BadEnvironment(f"{file} does not describe an environment: values are nested too deep") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadEnvironment(f"{file} does not describe an environment: {error!r}") from error


def _check_rows(where: str, text: str) -> Iterable[tuple[int, str]]:
    module, _, function = where.partition(":")
    found: Iterable[tuple[int, str]] = getattr(import_module(module), function)(text)
    return found


# --- plugins -------------------------------------------------------------------------------------------------------


def _find_plugins(group: str, read: Callable[[EntryPoint], V]) -> Mapping[str, V]:
    from importlib.metadata import entry_points  # with its imports and the search, 50 ms

    return {point.name: read(point) for point in sorted(entry_points(group=group), key=lambda point: point.name)}


def _sink(point: EntryPoint) -> SinkInfo:
    return SinkInfo(name=point.name, summary=_summary(point))


def _from_metadata(point: EntryPoint) -> EnvironmentInfo:
    """Info from the `env.json` next to the plugin's module; without one only the name is known."""
    file = find_data_file(point.module)
    if file is None:
        return EnvironmentInfo(name=point.name, summary=_summary(point), splits={})
    return read_environment(file)


def find_data_file(module: str) -> Path | None:
    """Find a module's `env.json` without importing the module or its parents."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        inside = Path(folder, *rest)
        # the module may be a package, or a file next to the data
        for file in (inside / DATA_FILE, inside.parent / DATA_FILE):
            if os.path.isfile(file) and file.is_relative_to(folder):
                return file
    return None


def _summary(point: EntryPoint) -> str:
    metadata = point.dist.metadata if point.dist else None
    return str(metadata["Summary"]) if metadata and "Summary" in metadata else f"from the plugin {point.module}"
