"""The index of a run's episodes: one row each in SQLite, with the place of its line, and the words of its text.

It is in the user's cache, never in the run folder. `update` reads on from where it stopped; if a file has been replaced
(another inode, or other bytes before the place that was reached), or the index has another format or is damaged, all of
it is thrown away and read anew.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from .reader import EpisodeRow, Place, ReadChunk, list_files, read_rows

__all__ = ["FACETS", "EpisodeIndex"]

FACETS = ("environment", "stage", "ending", "purpose", "mode")
"""Columns of few names."""

_FORMAT = 2
"""Of the tables below; another number throws an index away."""
_TAIL = 64
"""Bytes before the place that was reached, by which a file is recognised."""
_BATCH = 5000
"""Episodes that are written at a time, at least."""
_WAIT_S = 30.0
"""For another process that writes to the same index."""

_SETTINGS = (
    "page_size = 8192",
    "journal_mode = WAL",
    "synchronous = OFF",  # what is lost by a crash is read again
    "cache_size = -16384",
    "mmap_size = 1073741824",  # a filter that no index helps reads all rows: in place, without a copy
    "temp_store = MEMORY",
)

_TABLES = """
CREATE TABLE about (format INTEGER);
CREATE TABLE files (
    number INTEGER PRIMARY KEY, name TEXT UNIQUE, inode INTEGER, position INTEGER, tail BLOB, damaged INTEGER
);
CREATE TABLE names (number INTEGER PRIMARY KEY, name TEXT UNIQUE);
-- which names a column has, so that a filter can offer them without a look at all episodes
CREATE TABLE facets (facet TEXT, number INTEGER, PRIMARY KEY (facet, number)) WITHOUT ROWID;
-- what filters read, the most asked for first; texts by their number in `names`
CREATE TABLE episodes (
    number INTEGER PRIMARY KEY, success INTEGER, turns INTEGER, reward REAL, step INTEGER, ending INTEGER,
    environment INTEGER, advantage REAL, invalid_turns INTEGER, score REAL, kept INTEGER, purpose INTEGER, mode INTEGER,
    stage INTEGER, task INTEGER, horizon INTEGER, sampled_tokens INTEGER, total_tokens INTEGER, difficulty REAL,
    place INTEGER, seconds REAL
);
-- what a list shows besides, and where the line is
CREATE TABLE details (
    number INTEGER PRIMARY KEY, id TEXT, member TEXT, seed INTEGER, first_line TEXT, file INTEGER, start INTEGER,
    inner INTEGER, length INTEGER
);
CREATE INDEX by_facet ON episodes(environment, purpose, mode, success, ending, stage, step);
CREATE INDEX by_step ON episodes(step);
CREATE INDEX by_task ON episodes(task, step);
CREATE INDEX by_id ON details(id);
CREATE INDEX by_member ON details(member);
CREATE VIRTUAL TABLE words USING fts5(text, content='', detail=none, columnsize=0);
"""
_EPISODE = f"INSERT INTO episodes VALUES ({','.join('?' * 21)})"
_DETAIL = f"INSERT INTO details VALUES ({','.join('?' * 9)})"


class EpisodeIndex:
    """The index of one run, open in one thread."""

    def __init__(self, run: Path, cache: Path) -> None:
        """Open the index of a run in a folder for caches; where none can be written, a temporary one."""
        self.run = run
        self._path = cache / f"{hashlib.sha256(str(run.resolve()).encode(errors='replace')).hexdigest()[:32]}.sqlite"
        self._names: dict[str, int] = {}
        try:
            cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.database = self._open(str(self._path))
        except (OSError, sqlite3.OperationalError):
            # an empty name is a file that SQLite removes by itself
            self.database = self._open("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.database.close()

    def update(self) -> int:
        """Read what was appended since the last time; return how many episodes there are now."""
        try:
            if self._is_stale():
                self._clear()
            self._read_on()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            # a leftover from a crash of the machine: it holds nothing that is not in the run
            self.database.close()
            _delete(str(self._path))
            self.database = self._open(str(self._path))
            self._read_on()
        return self.count

    @property
    def count(self) -> int:
        (count,) = self.database.execute("SELECT coalesce(max(number), 0) FROM episodes").fetchone()
        return int(count)

    @property
    def num_damaged(self) -> int:
        """Lines, and members, that hold no episode."""
        (count,) = self.database.execute("SELECT coalesce(sum(damaged), 0) FROM files").fetchone()
        return int(count)

    def find_line(self, number: int) -> tuple[Path, Place]:
        """Return where the line of an episode is."""
        row = self.database.execute(
            "SELECT name, start, inner, length FROM details JOIN files ON files.number = file WHERE details.number = ?",
            (number,),
        ).fetchone()
        if row is None:
            raise KeyError(number)
        name, *place = row
        files = {file.name: file for file in list_files(self.run)}
        return files[name], Place(*place)

    # --- reading on

    def _open(self, path: str) -> sqlite3.Connection:
        with suppress(sqlite3.DatabaseError):
            database = _connect(path)
            with suppress(sqlite3.DatabaseError):
                if database.execute("SELECT format FROM about").fetchone() == (_FORMAT,):
                    return database
            database.close()
        _delete(path)
        database = _connect(path)
        database.executescript(f"BEGIN IMMEDIATE; {_TABLES} INSERT INTO about VALUES ({_FORMAT}); COMMIT;")
        return database

    def _is_stale(self) -> bool:
        """Whether a file that was read is gone, or another."""
        files = {file.name: file for file in list_files(self.run)}
        known = self.database.execute("SELECT name, inode, position, tail FROM files").fetchall()
        return any(name not in files or _is_other(files[name], *rest) for name, *rest in known)

    def _clear(self) -> None:
        with self._transaction():
            self._names.clear()
            for table in ("files", "names", "facets", "episodes", "details"):
                self.database.execute(f"DELETE FROM {table}")
            self.database.execute("INSERT INTO words(words) VALUES ('delete-all')")

    def _read_on(self) -> None:
        positions = dict(self.database.execute("SELECT name, position FROM files").fetchall())
        for file in list_files(self.run):
            position = positions.get(file.name, 0)
            if position == file.stat().st_size:
                continue
            pending = list[ReadChunk]()
            for read in read_rows(file, position):
                pending.append(read)
                if sum(len(each.rows) for each in pending) >= _BATCH:
                    self._write(file, pending)
                    pending = []
            if pending:
                self._write(file, pending)

    def _write(self, file: Path, pending: list[ReadChunk]) -> None:
        """Write rows and the place that was reached as one, unless another process has."""
        with self._transaction():
            self.database.execute(
                "INSERT OR IGNORE INTO files (name, inode, position, tail, damaged) VALUES (?, ?, 0, x'', 0)",
                (file.name, file.stat().st_ino),
            )
            known, position = self.database.execute(
                "SELECT number, position FROM files WHERE name = ?", (file.name,)
            ).fetchone()
            if position != pending[0].chunk.start:
                return
            number = self.count
            rows = [row for read in pending for row in read.rows]
            self.database.executemany(_EPISODE, (self._episode(at, row) for at, row in enumerate(rows, number + 1)))
            self.database.executemany(_DETAIL, (_detail(at, row, known) for at, row in enumerate(rows, number + 1)))
            self.database.executemany(
                "INSERT INTO words(rowid, text) VALUES (?, ?)",
                ((at, row.text) for at, row in enumerate(rows, number + 1)),
            )
            facets = {(facet, name) for row in rows for facet in FACETS if (name := getattr(row, facet)) is not None}
            self.database.executemany(
                "INSERT OR IGNORE INTO facets VALUES (?, ?)",
                sorted((facet, self._number_of(name)) for facet, name in facets),
            )
            end = pending[-1].chunk.end
            self.database.execute(
                "UPDATE files SET position = ?, tail = ?, damaged = damaged + ? WHERE number = ?",
                (end, _tail(file, end), sum(each.num_damaged for each in pending), known),
            )

    def _episode(self, number: int, row: EpisodeRow) -> tuple[object, ...]:
        name = self._number_of
        return (
            number,
            row.success,
            row.turns,
            row.reward,
            row.step,
            name(row.ending),
            name(row.environment),
            row.advantage,
            row.invalid_turns,
            row.score,
            row.kept,
            name(row.purpose),
            None if row.mode is None else name(row.mode),
            name(row.stage),
            name(row.task),
            row.horizon,
            row.sampled_tokens,
            row.total_tokens,
            row.difficulty,
            row.position,
            row.seconds,
        )

    def _number_of(self, name: str) -> int:
        number = self._names.get(name)
        if number is None:
            safe = name.encode(errors="replace").decode()
            self.database.execute("INSERT OR IGNORE INTO names (name) VALUES (?)", (safe,))
            (number,) = self.database.execute("SELECT number FROM names WHERE name = ?", (safe,)).fetchone()
            self._names[name] = number
        return number

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            # newly added names are gone
            self._names.clear()
            self.database.execute("ROLLBACK")
            raise
        self.database.execute("COMMIT")


def _connect(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
    for setting in _SETTINGS:
        database.execute(f"PRAGMA {setting}")
    return database


def _delete(path: str) -> None:
    for name in (path, f"{path}-wal", f"{path}-shm") if path else ():
        Path(name).unlink(missing_ok=True)


def _detail(number: int, row: EpisodeRow, file: int) -> tuple[object, ...]:
    return (number, row.id, row.group, row.seed, row.first_line, file, *row.place)


def _is_other(file: Path, inode: int, position: int, tail: bytes) -> bool:
    try:
        return file.stat().st_ino != inode or _tail(file, position) != tail
    except FileNotFoundError:
        return True


def _tail(file: Path, position: int) -> bytes:
    """The bytes before a place: fewer if the file is shorter."""
    with file.open("rb") as opened:
        opened.seek(max(position - _TAIL, 0))
        return opened.read(min(position, _TAIL))
