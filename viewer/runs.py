"""The runs that a viewer shows, by short ids; each with its logs, its tokenizer and an index that is kept up to date.

Many threads ask at a time. An index is read in a thread of its own, and a question waits for it only briefly: until it
is complete, answers cover what was read so far. Each question opens the index for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Error as DatabaseError
from threading import Event, Lock, Thread

from ..runtime.storage.episode_reader import EPISODES
from .episode_view import Decoder, open_tokenizer
from .index import EpisodeIndex
from .json_log import JsonLog
from .metric_table import MetricLog
from .queries import Queries
from .reader import list_files

__all__ = ["Run", "Runs", "find_run_folders"]

_WAIT_S = 1.0
"""How long a question waits for what was appended to be read."""
_LOGS = ("metrics.jsonl", "events.jsonl")

Signature = tuple[tuple[str, int, int, int], ...]


def find_run_folders(path: Path) -> list[Path]:
    """Find run folders, those without episodes too: the folder itself, or the folders in it."""
    if _is_run(path):
        return [path]
    try:
        return sorted(each for each in path.iterdir() if _is_run(each))
    except OSError:
        return []


def _is_run(path: Path) -> bool:
    return (path / EPISODES).is_dir() or (path / _LOGS[0]).is_file()


class Run:
    """One run, for many threads."""

    def __init__(self, id_: str, root: Path, cache: Path) -> None:
        self.id = id_
        self.root = root
        self.metrics = MetricLog(root / _LOGS[0], cache)
        self.events = JsonLog(root / _LOGS[1])
        self._cache = cache
        self._lock = Lock()
        self._decoder: Decoder | None = None
        self._reading: Event | None = None
        self._read: Signature | None = None
        self._seen: Signature | None = None
        self._version = 0

    @property
    def decoder(self) -> Decoder | None:
        """The run's tokenizer; looked for again while there is none."""
        if self._decoder is None:
            self._decoder = open_tokenizer(self.root)
        return self._decoder

    @property
    def is_reading(self) -> bool:
        """Whether the index is behind."""
        reading = self._reading
        return reading is not None and not reading.is_set()

    @contextmanager
    def queries(self, wait_s: float = _WAIT_S) -> Iterator[tuple[EpisodeIndex, Queries]]:
        """Open the index, brought up to date if that is quick."""
        self._begin_reading().wait(wait_s)
        with self._open() as index:
            yield index, Queries(index)

    def version(self) -> int:
        """Return a number that grows when a file of the run has changed."""
        signature = _signature(self.root)
        with self._lock:
            if signature != self._seen:
                self._seen, self._version = signature, self._version + 1
            return self._version

    def _begin_reading(self) -> Event:
        with self._lock:
            if self._reading is not None and not self._reading.is_set():
                return self._reading
            signature = _signature(self.root)
            done = Event()
            if signature == self._read:
                done.set()
            else:
                # the end of the process does not wait for it: a transaction that was not finished leaves no trace
                Thread(target=self._read_on, args=(done, signature), daemon=True).start()
            # only now, as another thread that asks `is_reading` takes an unset event for an index that is behind
            self._reading = done
            return done

    def _read_on(self, done: Event, signature: Signature) -> None:
        try:
            with self._open() as index:
                index.update()
            self._read = signature
            # readers look for a change, and find what is new
            with self._lock:
                self._version += 1
        except (OSError, DatabaseError):
            pass  # the next question tries again
        finally:
            done.set()

    def _open(self) -> EpisodeIndex:
        with _OPENING:
            return EpisodeIndex(self.root, self._cache)


_OPENING = Lock()
"""Two threads that find no index would both make one."""


class Runs:
    """Runs below some folders, found anew at each listing, as new ones may begin."""

    def __init__(self, roots: Sequence[Path], cache: Path) -> None:
        self._roots = tuple(roots)
        self._cache = cache
        self._lock = Lock()
        self._by_id: dict[str, Run] = {}
        self._ids: dict[Path, str] = {}

    def list(self) -> list[Run]:
        with self._lock:
            folders = dict.fromkeys(folder.resolve() for root in self._roots for folder in find_run_folders(root))
            return [self._by_id[self._ids[folder] if folder in self._ids else self._add(folder)] for folder in folders]

    def get(self, id_: str) -> Run | None:
        return self._by_id.get(id_)

    def _add(self, folder: Path) -> str:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", folder.name)[:100].strip(".") or "run"
        id_, number = name, 2
        while id_ in self._by_id:
            id_, number = f"{name}~{number}", number + 1
        self._by_id[id_] = Run(id_, folder, self._cache)
        self._ids[folder] = id_
        return id_


def _signature(root: Path) -> Signature:
    """Name, inode, size and time of each file that a run appends to."""
    found = []
    for path in (*(root / name for name in _LOGS), *list_files(root)):
        try:
            status = path.stat()
        except OSError:
            continue
        found.append((path.name, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)
