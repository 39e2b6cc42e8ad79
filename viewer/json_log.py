"""Files of JSON that a run writes: lines that are read on as they come, small documents, and answers without NaN.

A stranger's file is not trusted: a line that is not an object is left out, what is too large is not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Any

__all__ = [
    "JsonLog",
    "LineReader",
    "Row",
    "dump_json",
    "number_of",
    "parse_lines",
    "read_document",
    "read_text",
]

Row = dict[str, Any]

_LARGEST = 1 << 30
"""Bytes of a log."""
_LARGEST_TEXT = 1 << 22
"""Bytes of a text or a document."""
_TOGETHER = 1000
"""Lines that are parsed at once."""
_TAIL = 64
"""Bytes before the place that was reached, by which a file is recognised."""


class LineReader:
    """Reads the lines of a file on, as they are appended; a last line that is not whole is left for the next time."""

    def __init__(self, path: Path, inode: int = 0, position: int = 0, tail: bytes = b"") -> None:
        self._path = path
        self.inode, self.position, self.tail = inode, position, tail

    def read_on(self) -> tuple[bool, list[bytes]]:
        """Return whether what was read before is void, because the file was replaced or is gone, and the new lines."""
        try:
            return self._read_on()
        except OSError:
            return self._begin(0), []

    def _read_on(self) -> tuple[bool, list[bytes]]:
        if not self._path.is_file():  # nor is a pipe opened, which would block
            return self._begin(0), []
        is_void = False
        with self._path.open("rb") as file:
            status = self._path.stat()
            start = max(self.position - _TAIL, 0)
            file.seek(start)
            if status.st_ino != self.inode or file.read(self.position - start) != self.tail:
                is_void = self._begin(status.st_ino)
            file.seek(self.position)
            data = file.read(_LARGEST - self.position)
        whole = data[: data.rfind(b"\n") + 1]
        self.position += len(whole)
        self.tail = (self.tail + whole[-_TAIL:])[-min(_TAIL, self.position) :] if self.position else b""
        return is_void, whole.split(b"\n")

    def _begin(self, inode: int) -> bool:
        self.inode, self.position, self.tail = inode, 0, b""
        return True


class JsonLog:
    """The rows of a file of JSON lines; only what was appended is read again."""

    def __init__(self, path: Path) -> None:
        self._reader = LineReader(path)
        self._lock = Lock()
        self._rows: list[Row] = []

    def rows(self) -> Sequence[Row]:
        """Read on; return all rows."""
        with self._lock:
            is_void, lines = self._reader.read_on()
            self._rows = [] if is_void else self._rows
            for rows in parse_lines(lines):
                self._rows += rows
            return list(self._rows)


def read_text(path: Path) -> str | None:
    """Read a small text; None where there is none."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_TEXT:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def read_document(path: Path) -> Row:
    """Read a small JSON object; an empty one where there is none."""
    return _parse((read_text(path) or "").encode(errors="replace")) or {}


def number_of(row: Row, key: str) -> float | int | None:
    """The finite number of a key."""
    value = row.get(key)
    # in Python, true and false are whole numbers
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if _is_finite(value) else None


def dump_json(value: Any) -> bytes:
    """Write JSON; NaN and infinity, which it cannot express, become null."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_without_nan(value), allow_nan=False, separators=(",", ":")).encode()


def parse_lines(lines: Sequence[bytes]) -> Iterator[list[Row]]:
    """Parse lines, many as one list, so that their rows share their keys, or one by one where one is damaged."""
    for start in range(0, len(lines), _TOGETHER):
        some = [line for line in lines[start : start + _TOGETHER] if line.strip()]
        try:
            parsed = json.loads(b"[%s]" % b",".join(some))
        except (ValueError, RecursionError):
            parsed = []
        is_sound = len(parsed) == len(some) and all(isinstance(row, dict) for row in parsed)
        yield parsed if is_sound else [row for line in some if (row := _parse(line)) is not None]


def _parse(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    return [_without_nan(each) for each in value] if isinstance(value, list | tuple) else value


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False
