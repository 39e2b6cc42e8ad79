"""Earlier checkpoints of the run as players: an engine for each of the newest, started when it is first to play."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..protocols import Sampler
from ..seeds import derive

__all__ = ["EarlierCheckpoints", "SavedModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """A model that the run has saved."""

    step: int
    folder: Path
    version: int
    """Of its weights."""


class EarlierCheckpoints:
    """The checkpoints that a run keeps; which of them plays follows from a seed."""

    def __init__(
        self, list_models: Callable[[int], Sequence[SavedModel]], start: Callable[[SavedModel], Sampler]
    ) -> None:
        """`list_models` lists those saved before a step."""
        self._list_models, self._start = list_models, start
        self._models: Sequence[SavedModel] = ()
        self._engines: dict[SavedModel, Sampler] = {}

    async def stand_at(self, step: int) -> None:
        """From now on, choose among what was saved before this step; close engines that are no longer among it."""
        self._models = self._list_models(step)
        for model in [each for each in self._engines if each not in self._models]:
            await self._engines.pop(model).close()
        for engine in self._engines.values():
            # what was cached before a restart must not decide the last bits of what is sampled
            await engine.forget()

    def choose(self, seed: int) -> Sampler | None:
        """The engine of one of them; None where nothing was saved yet."""
        if not self._models:
            return None
        model = self._models[derive(seed, "earlier") % len(self._models)]
        if model not in self._engines:
            self._engines[model] = self._start(model)
        return self._engines[model]

    async def close(self) -> None:
        engines, self._engines = self._engines, {}
        for engine in engines.values():
            await engine.close()
