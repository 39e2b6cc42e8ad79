"""Games: made by TextWorld's generator from a seed, or read from a file that it has written.

What TextWorld compiles games with, and plays Z-machine files with, is not used: a game is played by its rules here.
"""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

from ..errors import EnvFault

# TextWorld imports its interpreter of Z-machine files, which needs a compiler and spaCy; nothing here plays such files
if "jericho" not in sys.modules and find_spec("jericho") is None:
    sys.modules["jericho"] = ModuleType("jericho")
    for _name in ("UnsupportedGameWarning", "TruncatedInputActionWarning"):
        setattr(sys.modules["jericho"], _name, type(_name, (UserWarning,), {}))

from textworld.generator import Game, GameOptions, make_game
from textworld.generator.chaining import QuestGenerationError
from textworld.generator.data import LOGIC_DATA_PATH, TEXT_GRAMMARS_PATH, KnowledgeBase
from textworld.generator.game import GameProgression
from textworld.generator.inform7 import Inform7Game

__all__ = ["GameProgression", "Inform7Game", "generate_game", "load_game"]

_TRIES = 20
_GAMES = 512
"""Kept in memory, for all episodes of a process."""
_making = Lock()


@cache  # its rules and words, which no game changes
def _knowledge() -> Any:
    return KnowledgeBase.load(logic_path=LOGIC_DATA_PATH, grammar_path=TEXT_GRAMMARS_PATH)


@lru_cache(_GAMES)
def generate_game(rooms: int, objects: int, quest_length: int, seed: int) -> Any:
    """Generate the game of a seed, with the first of its maps that a quest fits."""
    with _making:
        for number in range(_TRIES):
            options = GameOptions()
            options.kb = _knowledge()
            options.nb_rooms, options.nb_objects = rooms, objects
            options.quest_length = quest_length
            options.seeds = (seed * _TRIES + number) % 2**32
            try:
                return make_game(options)
            except QuestGenerationError:
                continue
    raise EnvFault(f"no quest of {quest_length} commands fits {rooms} rooms with seed {seed}")


@lru_cache(_GAMES)
def load_game(file: Path) -> Any:
    return Game.load(str(file))
