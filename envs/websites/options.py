"""What a user may choose about these sites: strict, every mistake named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from ..errors import BadOption
from ..protocol import Json
from .tasks import PARTS

__all__ = ["WebsitesOptions", "read_options"]

_MOST_NAMED = 8
"""Names in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebsitesOptions:
    sites: tuple[str, ...] = PARTS
    """Tasks that need no others."""
    templates: tuple[str, ...] = ()
    """Only tasks of these templates, such as `forum/block`; of all where none is named."""
    observation_tokens: int = 4096
    """Longest text of a page that is shown."""
    repeats: bool = True
    """Whether lines that the last page had too, such as a site's navigation, are shown again."""
    remind: bool = False
    """Whether the task stands under each page, in place of once above the first."""
    max_steps: int = 30
    """Most actions in one episode."""
    screenshots: bool = False
    """Whether each observation has a picture."""


def read_options(options: Mapping[str, Json], templates: Callable[[], tuple[str, ...]]) -> WebsitesOptions:
    """Read options; `templates` gives the names of all templates."""
    readers: dict[str, Callable[[Json], object]] = {
        **_READERS,
        "templates": partial(_names, "templates", "template", templates),
    }
    for name in options:
        if name not in readers:
            raise BadOption(f"websites has no option '{name[:40]}'{_hint(name, tuple(readers))}")
    read: dict[str, Any] = {name: readers[name](value) for name, value in options.items()}
    return WebsitesOptions(**read)


def _names(option: str, what: str, list_known: Callable[[], tuple[str, ...]], value: Json) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or len(set(map(str, value))) != len(value):
        raise BadOption(f"websites option '{option}' must list different {what}s")
    known = list_known()
    for name in value:
        if name not in known:
            raise BadOption(f"websites has no {what} '{str(name)[:40]}'{_hint(str(name), known)}")
    return tuple(map(str, value))


def _whole(option: str, low: int, high: int, value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadOption(f"websites option '{option}' must be a whole number from {low} to {high}")
    return value


def _flag(option: str, value: Json) -> bool:
    if not isinstance(value, bool):
        raise BadOption(f"websites option '{option}' must be true or false")
    return value


def _hint(name: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return f"; expected one of {', '.join(known[:_MOST_NAMED])}{more}"


_READERS: Mapping[str, Callable[[Json], object]] = {
    "sites": partial(_names, "sites", "site", lambda: PARTS),
    "observation_tokens": partial(_whole, "observation_tokens", 1, 1_000_000),
    "repeats": partial(_flag, "repeats"),
    "remind": partial(_flag, "remind"),
    "max_steps": partial(_whole, "max_steps", 1, 1000),
    "screenshots": partial(_flag, "screenshots"),
}
