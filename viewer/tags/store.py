"""Tags of episodes, in the user's data folder: a file for each run, by the run's own place.

A tag also records what its episode was like: another episode with the same id, as in a run that was started anew, does
not get the tag.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from ..queries import EpisodeSummary

__all__ = ["TagError", "TagStore"]

_NAME = re.compile(r"[\w][\w .-]{0,39}")
_MOST_TAGS = 20
"""Of one episode."""
_LARGEST = 1 << 24
"""Bytes of a file."""


class TagError(ValueError):
    """A tag that cannot be given, or a file that cannot be written."""


class TagStore:
    """The tags of all runs, for many threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()

    def of(self, run: Path) -> dict[str, list[str]]:
        """Ids of tagged episodes, in the order in which they were tagged, each with its tags."""
        return {id_: list(tags) for id_, (_, tags) in self._read(run).items()}

    def tags(self, run: Path, episode: EpisodeSummary) -> tuple[str, ...]:
        """The tags of an episode."""
        mark, tags = self._read(run).get(episode.id, ("", ()))
        return tuple(tags) if mark == _mark(episode) else ()

    def change(self, run: Path, episode: EpisodeSummary, tag: str, *, on: bool) -> tuple[str, ...]:
        """Give a tag to an episode, or take it away; return those that it has then."""
        if not _NAME.fullmatch(tag):
            raise TagError(
                "a tag is up to 40 letters, digits, spaces, '.', '-' and '_', and begins with a letter or digit"
            )
        with self._lock:
            known = self._read(run)
            mark, tags = known.get(episode.id, ("", ()))
            kept = [each for each in (tags if mark == _mark(episode) else ()) if each != tag] + [tag] * on
            if len(kept) > _MOST_TAGS:
                raise TagError(f"an episode has at most {_MOST_TAGS} tags")
            known.pop(episode.id, None)
            if kept:
                known[episode.id] = (_mark(episode), tuple(kept))
            self._write(run, known)
        return tuple(kept)

    def _file(self, run: Path) -> Path:
        name = hashlib.sha256(str(run.resolve()).encode(errors="replace")).hexdigest()[:32]
        return self._folder / f"{name}.json"

    def _read(self, run: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
        try:
            file = self._file(run)
            data = json.loads(file.read_bytes()) if file.stat().st_size <= _LARGEST else {}
            return {
                str(id_): (str(each["mark"]), tuple(map(str, each["tags"]))) for id_, each in data["episodes"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _write(self, run: Path, known: Mapping[str, tuple[str, tuple[str, ...]]]) -> None:
        episodes = {id_: {"mark": mark, "tags": tags} for id_, (mark, tags) in known.items()}
        text = json.dumps({"run": str(run.resolve()).encode(errors="replace").decode(), "episodes": episodes}, indent=1)
        try:
            if not known:
                self._file(run).unlink(missing_ok=True)
                return
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, temporary = tempfile.mkstemp(dir=self._folder)
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, self._file(run))
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
            raise TagError(f"tags cannot be written to '{self._folder}': {problem}") from error


def _mark(episode: EpisodeSummary) -> str:
    told = (episode.task, episode.seed, episode.first_line, episode.sampled_tokens, episode.turns, episode.score)
    return hashlib.sha256(repr(told).encode(errors="replace")).hexdigest()[:16]
