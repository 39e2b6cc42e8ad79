"""What a user may choose about search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import BadOption
from ..options import read_options
from ..protocol import Json
from .actions import SearchTool
from .questions import ASKED
from .wordnet import TOPICS

__all__ = ["SearchOptions", "read_search_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    corpus: str = ""
    """Folder of a corpus; the shipped one if none is given."""
    questions: str = ""
    """File of questions for training and evaluation in place of the shipped ones."""
    benchmarks: str = ""
    """Folder of the benchmarks' files."""
    hops: tuple[int, ...] = tuple(ASKED)
    """Shipped questions of so many facts in a row."""
    topics: tuple[str, ...] = tuple(TOPICS)
    """Shipped questions about these."""
    retriever_url: str = ""
    encoder_url: str = ""
    passages: int = 3
    """Passages that one search finds."""
    tools: tuple[str, ...] = (SearchTool.SEARCH.value,)
    """Besides `answer`."""
    score: str = "exact_match"


_EXCLUSIVE = (
    ("retriever_url", "corpus", "the retriever has its own"),
    ("retriever_url", "encoder_url", "the retriever has its own"),
    ("questions", "hops", "that chooses among the shipped ones"),
    ("questions", "topics", "that chooses among the shipped ones"),
)


def read_search_options(given: Mapping[str, Json]) -> SearchOptions:
    options = read_options(SearchOptions, given)
    for one, other, why in _EXCLUSIVE:
        if one in given and other in given:
            raise BadOption(f"search option '{other}' cannot be combined with '{one}': {why}")
    if options.encoder_url and not options.corpus:
        raise BadOption("search option 'encoder_url' needs a 'corpus' with vectors")
    return replace(
        options,
        corpus=_resolve("corpus", options.corpus),
        questions=_resolve("questions", options.questions),
        benchmarks=_resolve("benchmarks", options.benchmarks),
    )


def _resolve(option: str, path: str) -> str:
    is_there, kind = (Path.is_file, "file") if option == "questions" else (Path.is_dir, "folder")
    if path and not is_there(Path(path)):
        raise BadOption(f"search option '{option}' must be a {kind}, and there is none: {path!r}")
    return str(Path(path).resolve()) if path else ""
