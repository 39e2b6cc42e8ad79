"""What a user may choose about search: strict, every mistake named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import BadOption
from ..protocol import Json
from .actions import Tool
from .questions import ASKED
from .scoring import SCORES
from .wordnet import TOPICS

__all__ = ["Options", "read_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    corpus: Path | None = None
    """Folder of a corpus; the shipped one if none is given."""
    questions: Path | None = None
    """File of questions to train with and to be measured on in place of the shipped ones."""
    benchmarks: Path | None = None
    """Folder of the benchmarks' files."""
    hops: tuple[int, ...] = tuple(ASKED)
    """Shipped questions of so many facts in a row."""
    topics: tuple[str, ...] = tuple(TOPICS)
    """Shipped questions about these."""
    retriever_url: str | None = None
    encoder_url: str | None = None
    passages: int = 3
    """That one search finds."""
    tools: frozenset[Tool] = frozenset({Tool.SEARCH})
    """Beside `answer`."""
    score: str = "exact_match"


def read_options(options: Mapping[str, Json]) -> Options:
    for name in options:
        if name not in _READERS:
            raise BadOption(f"search has no option '{name[:40]}'{_hint(name, _READERS)}")
    read: dict[str, Any] = {name: _READERS[name](value) for name, value in options.items()}
    _no_quarrel(read)
    return Options(**read)


def _no_quarrel(read: Mapping[str, object]) -> None:
    quarrels = (
        ("retriever_url", "corpus", "the retriever has its own"),
        ("retriever_url", "encoder_url", "the retriever has its own"),
        ("questions", "hops", "that chooses among the shipped ones"),
        ("questions", "topics", "that chooses among the shipped ones"),
    )
    for one, other, why in quarrels:
        if one in read and other in read:
            raise BadOption(f"search option '{other}' means nothing beside '{one}': {why}")
    if "encoder_url" in read and "corpus" not in read:
        raise BadOption("search option 'encoder_url' needs a 'corpus' with vectors")


def _path(option: str, folder: bool, value: Json) -> Path:
    path = Path(value) if isinstance(value, str) and value else None
    if path is None or not (path.is_dir() if folder else path.is_file()):
        raise BadOption(
            f"search option '{option}' must be a {'folder' if folder else 'file'}, and there is none: {value!r}"
        )
    return path.resolve()


def _url(option: str, value: Json) -> str:
    if not isinstance(value, str) or urlsplit(value).scheme not in ("http", "https"):
        raise BadOption(f"search option '{option}' must begin with http:// or https://")
    return value


def _some(option: str, known: Collection[Any], value: Json) -> tuple[Any, ...]:
    listed = list(value) if isinstance(value, list | tuple) else []
    # by their type too: true is no number here
    if (
        not listed
        or any(type(each) is not type(next(iter(known))) for each in listed)
        or len(set(listed)) != len(listed)
    ):
        raise BadOption(f"search option '{option}' must list different ones of {', '.join(map(str, known))}")
    for each in listed:
        if each not in known:
            raise BadOption(f"search option '{option}' knows no '{str(each)[:40]}'{_hint(str(each), map(str, known))}")
    return tuple(each for each in known if each in listed)


def _tools(value: Json) -> frozenset[Tool]:
    known = [tool.value for tool in Tool if tool is not Tool.ANSWER]
    return frozenset(map(Tool, _some("tools", known, value)))


def _passages(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 20:
        raise BadOption("search option 'passages' must be a whole number from 1 to 20")
    return value


def _score(value: Json) -> str:
    if not isinstance(value, str) or value not in SCORES:
        raise BadOption(f"search option 'score' must be one of {', '.join(SCORES)}")
    return value


def _hint(name: str, known: Collection[str] | map[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


_READERS: Mapping[str, Callable[[Json], object]] = {
    "corpus": partial(_path, "corpus", True),
    "questions": partial(_path, "questions", False),
    "benchmarks": partial(_path, "benchmarks", True),
    "hops": partial(_some, "hops", tuple(ASKED)),
    "topics": partial(_some, "topics", tuple(TOPICS)),
    "retriever_url": partial(_url, "retriever_url"),
    "encoder_url": partial(_url, "encoder_url"),
    "passages": _passages,
    "tools": _tools,
    "score": _score,
}
