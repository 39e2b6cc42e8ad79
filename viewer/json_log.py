"""Files of JSON that a run writes: lines that are read on as they come, small documents, and answers without NaN.

What a stranger's file holds is not trusted: a line that is no object is left out, what is too large is not read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Any

__all__ = ["JsonLog", "Row", "dump_json", "number_of", "read_document", "read_text"]

Row = dict[str, Any]

_LARGEST = 1 << 30
"""Bytes of a log."""
_LARGEST_TEXT = 1 << 22
"""Bytes of a text or a document."""
_TOGETHER = 1000
"""Lines that are parsed at once."""
_TAIL = 64
"""Bytes before the place that was reached, by which a file is known again."""


class JsonLog:
    """The rows of a file of JSON lines; only what was appended is read again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._rows: list[Row] = []
        self._inode = self._position = 0
        self._tail = b""

    def rows(self) -> Sequence[Row]:
        """Read on; return all rows. A last line that is not whole is left for the next time."""
        with self._lock:
            try:
                self._read_on()
            except OSError:
                self._begin(0)
            return list(self._rows)

    def _read_on(self) -> None:
        if not self._path.is_file():  # nor is a pipe opened, which would wait
            self._begin(0)
            return
        with self._path.open("rb") as file:
            status = self._path.stat()
            start = max(self._position - _TAIL, 0)
            file.seek(start)
            if status.st_ino != self._inode or file.read(self._position - start) != self._tail:
                self._begin(status.st_ino)
            file.seek(self._position)
            data = file.read(_LARGEST - self._position)
            whole = data[: data.rfind(b"\n") + 1]
            self._rows += _parse_lines(whole.split(b"\n"))
            self._position += len(whole)
            self._tail = (self._tail + whole)[-min(_TAIL, self._position) :] if self._position else b""

    def _begin(self, inode: int) -> None:
        self._rows, self._inode, self._position, self._tail = [], inode, 0, b""


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
    # true and false are whole numbers to Python
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if _is_finite(value) else None


def dump_json(value: Any) -> bytes:
    """Write JSON; NaN and infinity, which it has no word for, become null."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_without_nan(value), allow_nan=False, separators=(",", ":")).encode()


def _parse_lines(lines: Sequence[bytes]) -> list[Row]:
    """Parse many lines as one list, so that their rows share their keys, or one by one where one of them is damaged."""
    rows = list[Row]()
    for start in range(0, len(lines), _TOGETHER):
        some = [line for line in lines[start : start + _TOGETHER] if line.strip()]
        try:
            parsed = json.loads(b"[%s]" % b",".join(some))
        except (ValueError, RecursionError):
            parsed = []
        is_sound = len(parsed) == len(some) and all(isinstance(row, dict) for row in parsed)
        rows += parsed if is_sound else [row for line in some if (row := _parse(line)) is not None]
    return rows


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
