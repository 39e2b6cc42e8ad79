"""The pages, and the tasks made of them: a page with a number, `click-button-17`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ..errors import EnvFault, UnknownTask
from ..protocol import parse_numbered
from ..tables import read_table

__all__ = [
    "NUMBERS",
    "find_html",
    "find_page",
    "list_page_tasks",
    "load_all_pages",
    "load_pages",
    "load_words",
    "read_expert_share",
]

NUMBERS: Mapping[str, range] = {"train": range(250), "test": range(1000, 1020)}
"""What randomness is seeded with."""


@cache
def load_all_pages() -> Mapping[str, str]:
    """All pages by name, with how many of how many tasks the expert solves."""
    return read_table(__package__, "pages.txt")


@cache
def load_pages() -> Mapping[str, str]:
    """Pages that are the same each time."""
    return {name: share for name, share in load_all_pages().items() if share != "left-out"}


def read_expert_share(page: str) -> float:
    won, _, tried = load_pages()[page].partition("/")
    return int(won) / int(tried) if tried else 0.0


@cache
def load_words() -> Mapping[str, str]:
    """Words seen on each page."""
    return read_table(__package__, "words.txt")


def list_page_tasks(split: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Ids of a split, ordered by number, then page: every prefix covers all pages."""
    return tuple(f"{page}-{number}" for number in NUMBERS[split] for page in wanted)


def find_page(task: str) -> tuple[str, int]:
    page, number = parse_numbered(task) or ("", 0)
    if page not in load_all_pages() or not any(number in each for each in NUMBERS.values()):
        raise UnknownTask(f"miniwob has no task '{task[:60]}'")
    return page, number


def find_html() -> Path:
    """Folder of the pages, found without importing the package that would drive them."""
    spec = find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise EnvFault("miniwob needs the package of that name: pip install 'agym-dsl[web]'")
    return Path(spec.submodule_search_locations[0]) / "html"
