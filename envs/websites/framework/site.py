"""What a site is: data in SQLite, and pages that answer requests from it.

Nothing here or in a site's own folder knows of ports, browsers or other episodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from enum import Enum
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from random import Random
from sqlite3 import Connection
from typing import Final, TypeAlias
from urllib.parse import urlencode

__all__ = [
    "KEEP",
    "NOW",
    "TODAY",
    "Forbidden",
    "Host",
    "Keep",
    "PageError",
    "PageHandler",
    "PageNotFound",
    "PageRequest",
    "PageRoute",
    "Paging",
    "PathParts",
    "Redirect",
    "SiteAnswer",
    "SitePage",
    "WebSite",
    "format_moment",
    "on_get",
    "on_post",
    "read_whole",
    "show_form",
]

TODAY: Final = date(2026, 3, 2)
"""In all sites, always."""
NOW: Final = datetime.combine(TODAY, time(12))


class Keep(Enum):
    """Says that whoever is logged in stays logged in."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    method: str = "GET"
    host: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    """Fields sent; the last of those that share a name. A box that is not ticked is not there."""
    user: str | None = None
    """Who is logged in at this host."""

    def here(self, **other: object) -> str:
        """This address with other parameters; empty ones are left out."""
        query = {**self.query, **{name: str(value) for name, value in other.items()}}
        kept = urlencode({name: value for name, value in query.items() if value})
        return f"{self.path}?{kept}" if kept else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePage:
    template: str
    values: Mapping[str, object] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    to: str
    """A path of the same host."""
    user: str | Keep | None = KEEP
    """Who is logged in at this host from now on."""


SiteAnswer: TypeAlias = SitePage | Redirect
PathParts: TypeAlias = Mapping[str, str]
"""The named parts of a path."""
PageHandler: TypeAlias = Callable[[Connection, PageRequest, PathParts], SiteAnswer]


def show_form(template: str, error: str = "", **values: object) -> SitePage:
    """A page with a form, and what is wrong with what was sent."""
    return SitePage(template=template, values={"error": error, **values}, status=400 if error else 200)


class PageError(Exception):
    """There is no such page; an error page shows the message instead."""

    status = 400


class PageNotFound(PageError):
    status = 404

    def __init__(self, message: str = "There is no such page.") -> None:
        super().__init__(message)


class Forbidden(PageError):
    """Not allowed with what was sent, or not for this user."""

    status = 403


@dataclass(frozen=True, slots=True)
class PageRoute:
    method: str
    pattern: str
    """`/product/<sku>`; `<path...>` also takes slashes."""
    handler: PageHandler

    def match(self, request: PageRequest) -> Mapping[str, str] | None:
        if self.method != request.method:
            return None
        found = _compile(self.pattern).fullmatch(request.path)
        return None if found is None else found.groupdict()


@cache  # every request is held against many
def _compile(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"<(\w+)(\.\.\.)?>", pattern)
    texts = [re.escape(text) for text in parts[::3]]
    named = [f"(?P<{name}>{'.+' if rest else '[^/]+'})" for name, rest in zip(parts[1::3], parts[2::3], strict=True)]
    return re.compile("".join(chain.from_iterable(zip_longest(texts, named, fillvalue=""))))


def on_get(pattern: str, handler: PageHandler) -> PageRoute:
    return PageRoute("GET", pattern, handler)


def on_post(pattern: str, handler: PageHandler) -> PageRoute:
    return PageRoute("POST", pattern, handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    title: str
    user: str | None
    """Who is logged in when an episode begins."""
    routes: tuple[PageRoute, ...]


def _share_nothing(db: Connection, request: PageRequest) -> Mapping[str, object]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WebSite:
    name: str
    hosts: Mapping[str, Host]
    schema: str
    """SQL that makes the tables."""
    fill: Callable[[Connection, Random], None]
    """Puts into them what there is when an episode begins."""
    templates: Path
    """A folder; `error.html` there takes `status` and `message`."""
    filters: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    """For templates, by name."""
    shared: Callable[[Connection, PageRequest], Mapping[str, object]] = _share_nothing
    """What all pages are given, error pages too."""
    functions: Mapping[str, Callable[..., str | int]] = field(default_factory=dict)
    """What SQL over its data may call, by name."""
    passing: frozenset[str] = frozenset()
    """Tables whose changes mean nothing, such as messages that are shown once."""


def format_moment(moment: datetime) -> str:
    """Write a time as the data keeps it, so that times sort as they read."""
    return moment.strftime("%Y-%m-%d %H:%M")


def read_whole(text: str, otherwise: int = 0) -> int:
    """Read a number of at most nine digits from an address or a form."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """One page of a long list."""

    number: int
    """From 1 on."""
    size: int
    total: int

    @classmethod
    def of(cls, request: PageRequest, *, size: int, total: int) -> Paging:
        """Read the parameter `page`; a number past the end is the last page."""
        last = max(1, -(-total // size))
        return cls(number=min(max(1, read_whole(request.query.get("page", ""), 1)), last), size=size, total=total)

    @property
    def last(self) -> int:
        return max(1, -(-self.total // self.size))

    @property
    def offset(self) -> int:
        return (self.number - 1) * self.size
