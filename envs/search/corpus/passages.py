"""Passages of a folder of texts, always in the same order.

A folder holds `.jsonl` files with a passage in each line (`text` and perhaps `title`, `id` and `document`, or
`contents`, a quoted title and a text in one), and `.txt` or `.md` files, which are cut into passages at their
paragraphs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import BadOption

__all__ = ["Passage", "cut_passages", "read_folder"]

_WORDS = 120
"""In a passage, where a document is cut: what an agent can read three of in a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    title: str
    text: str
    document: str
    """Where it stands; passages of one document follow each other."""


def read_folder(folder: Path) -> Iterator[Passage]:
    """Every passage below a folder, by the names of its files."""
    files = sorted(file for file in folder.rglob("*") if file.suffix in _READERS and file.is_file())
    if not files:
        raise BadOption(f"search option 'corpus': '{folder}' holds no {', '.join(_READERS)} file")
    for file in files:
        yield from _READERS[file.suffix](file, file.relative_to(folder).as_posix())


def cut_passages(title: str, text: str, document: str, words: int = _WORDS) -> Iterator[Passage]:
    """Cut a document into passages of whole paragraphs; a longer paragraph is cut between words."""
    for part in _pack(_pieces(text, words), words):
        yield Passage(title=title, text=part, document=document)


def _pieces(text: str, words: int) -> Iterator[list[str]]:
    for paragraph in text.split("\n\n"):
        split = paragraph.split()
        for at in range(0, len(split), words):
            yield split[at : at + words]


def _pack(pieces: Iterable[list[str]], words: int) -> Iterator[str]:
    packed: list[str] = []
    for piece in pieces:
        if packed and len(packed) + len(piece) > words:
            yield " ".join(packed)
            packed = []
        packed += piece
    if packed:
        yield " ".join(packed)


def _from_lines(file: Path, name: str) -> Iterator[Passage]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _from_row(_row(line, f"{file}:{number}"), f"{name}:{number}")


def _row(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        raise BadOption(f"{where}: expected a JSON object on each line") from None
    texts = isinstance(row, dict) and [row.get(key, "") for key in ("title", "text", "contents")]
    if not texts or not all(isinstance(text, str) for text in texts) or not any(texts[1:]):
        raise BadOption(f"{where}: expected an object with 'text' or 'contents', and perhaps a 'title'")
    return dict(row)


def _from_row(row: Mapping[str, Any], place: str) -> Passage:
    document = str(row.get("document", row.get("id", place)))
    if "text" in row:
        return Passage(title=row.get("title", ""), text=row["text"], document=document)
    title, _, text = row["contents"].partition("\n")
    return Passage(title=title.strip('"'), text=text, document=document)


def _from_text(file: Path, name: str) -> Iterator[Passage]:
    text = file.read_text(encoding="utf-8", errors="replace")
    title = next((line.strip("# ") for line in text.splitlines() if line.strip("# ")), name)
    yield from cut_passages(title[:120], text, name)


_READERS: Mapping[str, Callable[[Path, str], Iterator[Passage]]] = {
    ".jsonl": _from_lines,
    ".md": _from_text,
    ".txt": _from_text,
}
