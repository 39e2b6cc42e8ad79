"""Earlier checkpoints as players: which of them plays, when an engine starts, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agym.runtime.rollout.earlier import EarlierCheckpoints, SavedModel


@dataclass
class Engine:
    model: SavedModel
    forgot: int = 0
    closed: bool = False

    async def forget(self) -> None:
        self.forgot += 1

    async def close(self) -> None:
        self.closed = True


@dataclass
class Saved:
    """Two of every ten steps are kept."""

    started: list[Engine] = field(default_factory=list)

    def list_models(self, step: int) -> Sequence[SavedModel]:
        steps = list(range(10, step, 10))[-2:]
        return [SavedModel(step=at, folder=Path(f"step-{at}"), version=3 * at) for at in steps]

    def start(self, model: SavedModel) -> Engine:
        self.started.append(Engine(model))
        return self.started[-1]

    @property
    def checkpoints(self) -> EarlierCheckpoints:
        return EarlierCheckpoints(self.list_models, self.start)  # type: ignore[arg-type]


def test_before_the_first_checkpoint_there_is_none() -> None:
    saved = Saved()
    earlier = saved.checkpoints
    asyncio.run(earlier.stand_at(10))
    assert earlier.choose(1) is None
    assert saved.started == []


def test_a_seed_chooses_the_same_checkpoint_each_time_and_seeds_choose_all() -> None:
    saved = Saved()
    earlier = saved.checkpoints
    asyncio.run(earlier.stand_at(35))
    chosen = [earlier.choose(seed) for seed in range(20)]
    assert chosen == [earlier.choose(seed) for seed in range(20)]
    assert sorted(engine.model.step for engine in saved.started) == [20, 30]


def test_an_engine_starts_when_it_first_plays_and_ends_with_its_checkpoint() -> None:
    saved = Saved()
    earlier = saved.checkpoints

    async def go() -> None:
        await earlier.stand_at(25)
        for seed in range(20):
            earlier.choose(seed)
        await earlier.stand_at(35)
        assert [(each.model.step, each.closed, each.forgot) for each in _by_step(saved)] == [
            (10, True, 0),
            (20, False, 1),
        ]
        for seed in range(20):
            earlier.choose(seed)
        assert [each.model.step for each in _by_step(saved)] == [10, 20, 30]
        await earlier.close()

    asyncio.run(go())
    assert all(each.closed for each in saved.started)


def _by_step(saved: Saved) -> list[Engine]:
    return sorted(saved.started, key=lambda each: each.model.step)
