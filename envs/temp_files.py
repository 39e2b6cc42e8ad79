"""Temporary folders, removed by their maker, or else by the next one.

A folder is locked as long as the process that made it, or one forked from it, lives.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp

__all__ = ["Temporary"]

_PREFIX = "agym."
"""Short: names of sockets may not be long, and servers may lie below servers."""
_OURS = ".agym-temporary"
"""Lies in each of them: somebody else's folder of a similar name is not ours to remove."""


class Temporary:
    def __init__(self) -> None:
        for folder in Path(gettempdir()).glob(f"{_PREFIX}*"):
            with suppress(OSError):  # it is held, or not ours to remove
                _remove_abandoned(folder)
        self.path = Path(mkdtemp(prefix=_PREFIX))
        self._lock: int | None = os.open(self.path, os.O_RDONLY)
        with suppress(OSError):  # where nothing can be locked, nothing is taken for abandoned
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / _OURS).touch()

    def remove(self) -> None:
        """Remove the folder; never raises, and may be called more than once."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _remove_abandoned(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_uid == os.geteuid() and (folder / _OURS).is_file():
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
