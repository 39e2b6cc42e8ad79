"""What a user may choose about WebArena: strict, every mistake named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import BadOption
from ..protocol import Json

__all__ = ["SITES", "Options", "read_options"]

SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "map", "wikipedia", "homepage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    tasks_file: Path | None = None
    """WebArena's configuration of tasks; without it there are none."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Address of each site, without a slash at its end."""
    observation_tokens: int = 4096
    """Of a page's text, at the most."""
    max_steps: int = 30
    """Actions in one episode, at the most."""


def read_options(options: Mapping[str, Json]) -> Options:
    for name in options:
        if name not in _READERS:
            raise BadOption(f"webarena has no option '{name[:40]}'{_hint(name, _READERS)}")
    read: dict[str, Any] = {name: _READERS[name](value) for name, value in options.items()}
    return Options(**read)


def _file(value: Json) -> Path:
    if not isinstance(value, str) or not Path(value).is_file():
        raise BadOption(f"webarena option 'tasks_file' must name a file; there is none at '{str(value)[:200]}'")
    return Path(value)


def _hosts(value: Json) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise BadOption("webarena option 'hosts' must give an address for each site")
    for site, address in value.items():
        if site not in SITES:
            raise BadOption(f"webarena has no site '{site[:40]}'{_hint(site, SITES)}")
        if not isinstance(address, str) or not _is_address(address):
            raise BadOption(f"webarena's host of '{site}' must be an address such as http://127.0.0.1:7770")
    return {site: str(address).rstrip("/") for site, address in value.items()}


def _is_address(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def _whole(option: str, low: int, high: int, value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadOption(f"webarena option '{option}' must be a whole number from {low} to {high}")
    return value


def _hint(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; expected one of {', '.join(known)}"


_READERS: Mapping[str, Callable[[Json], object]] = {
    "tasks_file": _file,
    "hosts": _hosts,
    "observation_tokens": partial(_whole, "observation_tokens", 1, 1_000_000),
    "max_steps": partial(_whole, "max_steps", 1, 1000),
}
