"""Played episodes in a folder: as episodes, which `agym view` shows, and as demonstrations, which `data.path` reads.

The folder is one that the player names or their own, never that of a run. Nothing in it is changed, only added to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...runtime.storage.episode_reader import EPISODES, MEDIA
from ..tags.messages import messages_of

__all__ = ["DEMONSTRATIONS", "PLAYED_FILE", "NotSaved", "save_demonstration", "save_episode"]

PLAYED_FILE = Path(EPISODES) / "played.jsonl"
"""Of the folder, the file of episodes."""
DEMONSTRATIONS = "demonstrations.jsonl"
"""Of the folder, the file for `data: {source: file, path: ...}`."""


class NotSaved(Exception):
    """Why an episode could not be saved."""


def save_episode(folder: Path, record: Mapping[str, Any], pictures: Mapping[str, bytes]) -> str:
    """Add an episode with its pictures; return the name of its file in the folder."""
    for name, data in pictures.items():
        _write_picture(folder / EPISODES / MEDIA / f"{name}.png", data)
    _append(folder / PLAYED_FILE, record)
    return str(PLAYED_FILE)


def save_demonstration(folder: Path, record: Mapping[str, Any]) -> str:
    """Add an episode as a conversation to imitate; return the name of its file in the folder."""
    conversation = messages_of(record)
    if conversation is None:
        raise NotSaved("nothing was played that could be imitated")
    _append(folder / DEMONSTRATIONS, conversation)
    return DEMONSTRATIONS


def _append(file: Path, line: Mapping[str, Any]) -> None:
    text = json.dumps(line, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # one write, so that two players with the same folder do not mix their lines
        with file.open("ab", buffering=0) as opened:
            opened.write(text.encode("ascii"))
            os.fsync(opened.fileno())
    except OSError as error:
        raise NotSaved(f"'{file}' cannot be written: {(error.strerror or str(error)).lower()}") from error


def _write_picture(file: Path, data: bytes) -> None:
    if file.exists():
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    except OSError as error:
        raise NotSaved(f"'{file}' cannot be written: {(error.strerror or str(error)).lower()}") from error
