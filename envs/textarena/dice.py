"""Randomness of one episode: what textarena's games draw from the process's generators is drawn from its own.

The games call `random` and `numpy.random` through the names in their modules. There these names lead to `_Chance`,
which hands each call to the generators of the episode whose turn it is in this thread; nothing of the process's is
touched.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["Dice", "lead_to_dice"]

_PACKAGE = "textarena"


class Dice:
    """Generators of one episode."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.numpy = np.random.RandomState(self.random.getrandbits(32))

    @contextmanager
    def thrown(self) -> Iterator[None]:
        """Let games draw from these dice."""
        before = _THROWN.set(self)
        try:
            yield
        finally:
            _THROWN.reset(before)

    def default_rng(self, seed: int | None = None) -> np.random.Generator:
        return np.random.default_rng(self.random.getrandbits(32) if seed is None else seed)


_THROWN: ContextVar[Dice] = ContextVar("dice of the episode whose turn it is")


class _Chance(ModuleType):
    """Stands in for the module `random`."""

    def __getattr__(self, name: str) -> Any:
        dice = _THROWN.get().random
        return getattr(dice, name) if hasattr(dice, name) else getattr(random, name)


class _NumpyChance(ModuleType):
    """Stands in for `numpy.random`."""

    def __getattr__(self, name: str) -> Any:
        dice = _THROWN.get()
        owner = dice if name == "default_rng" else dice.numpy if hasattr(dice.numpy, name) else np.random
        return getattr(owner, name)


class _Numpy(ModuleType):
    """Stands in for `numpy`."""

    random = _NumpyChance("random")

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def lead_to_dice() -> None:
    """Point textarena's modules, as far as they are imported, to the episode's dice."""
    stands = {id(random): _Chance("random"), id(np): _Numpy("numpy")}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == _PACKAGE:
            for alias, value in list(vars(module).items()):
                if isinstance(value, ModuleType) and id(value) in stands:
                    setattr(module, alias, stands[id(value)])
