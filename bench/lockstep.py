"""Claim: there is no barrier between turns: where environments answer late now and then, that is 3 times as fast (floor
2) as rounds in which all episodes step together.

The quickstart's game and an agent that has imitated a little; each answer of the environment takes a time drawn by the
episode and the turn alone, so both ways wait for the same answers. In lock-step no episode goes on before all that are
still playing have their answers, and the next ones begin when all of a batch have ended; otherwise it is the same
worker. Where all episodes begin at once, nothing can be faster than the slowest one's answers: that limit is printed
next to it.

    python bench/lockstep.py [--rounds 1] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from agym.dsl.model.recipe import Environment
from agym.envs.protocol import EnvClient, EnvSpec, Observation, Session, Step, TaskInfo
from agym.runtime.rollout.env_connections import OpenClient
from engines import Engines, in_prepared_process, quickstart, started, walked, warm_up_of
from paired import ratio, seconds

_SLOTS = 64
_HORIZON = 12
Latency = Callable[[Random], float]
LATENCIES: dict[str, Latency] = {
    # medians of 0.1 s; means of 0.16 and 0.19 s
    "lognormal, sigma 1": lambda draws: 0.1 * draws.lognormvariate(0.0, 1.0),
    "Pareto, alpha 1.5": lambda draws: 0.063 * draws.paretovariate(1.5),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="of the first kind of latency alone, without refills")
    arguments = parser.parse_args()
    in_prepared_process()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), arguments.rounds, quick=arguments.quick))
    return 0


async def measure(folder: Path, rounds: int, *, quick: bool) -> None:
    unmeasured = ("eval=null", "schedule.0.eval_every=null")
    plan, late = warm_up_of(quickstart("schedule.0.until=step >= 60", "algorithm.data.limit=480", *unmeasured)), Late()
    async with started(plan, folder, _SLOTS, reach=late.around) as engines:
        await walked(plan, folder, engines.workers)
        await engines.workers.sync(60)
        columns = (
            "latency",
            f"episodes, in {_SLOTS} slots",
            "least possible, s",
            "free, wall s",
            "in lock-step, wall s",
        )
        print(f"| {' | '.join(columns)} | median of pairs |\n|{'---|' * 6}")
        for name, latency in list(LATENCIES.items())[: 1 if quick else None]:
            for episodes in (_SLOTS, 4 * _SLOTS)[: 1 if quick else None]:
                late.latency = latency
                await compare(engines, late, name, episodes, rounds)


async def compare(engines: Engines, late: Late, name: str, episodes: int, rounds: int) -> None:
    ways: dict[str, Callable[[], Awaitable[None]]] = {
        "free": partial(play, engines, late, episodes, None),
        "lock-step": partial(play, engines, late, episodes, Rounds),
    }
    # each takes many seconds, of which the engine's first ones are few: no round is left out
    spent = {name: [await seconds(way) for _ in range(rounds)] for name, way in ways.items()}
    walls = [" / ".join(f"{each.wall:.1f}" for each in sorted(spent[way], key=lambda each: each.wall)) for way in ways]
    by = ratio(spent["free"], spent["lock-step"], "wall")
    print(f"| {name} | {episodes} | {late.least:.1f} | {' | '.join(walls)} | {by:.2f} |", flush=True)


async def play(engines: Engines, late: Late, episodes: int, rounds: Callable[[], Rounds] | None) -> None:
    """All in as many slots as there are; in lock-step a batch of them begins when the last one has ended."""
    late.waited = []
    orders = await engines.orders(episodes // 8, 8, _HORIZON)
    size = len(orders) if rounds is None else _SLOTS // 8
    for at in range(0, len(orders), size):
        late.rounds = rounds() if rounds else None
        await engines.rollout.play(orders[at : at + size], engines.style(_SLOTS), lambda episode: None)
    late.rounds = None


# --- an environment that answers late ------------------------------------------------------------------------------


class Rounds:
    """Lets no episode go on before all that are still playing have arrived."""

    def __init__(self) -> None:
        self._here = 0
        self._came = 0
        self._gate = asyncio.Event()

    def enter(self) -> None:
        self._here += 1

    def leave(self) -> None:
        self._here -= 1
        self._open_if_complete()

    async def together(self) -> None:
        self._came += 1
        gate = self._gate
        self._open_if_complete()
        await gate.wait()

    def _open_if_complete(self) -> None:
        if self._came == self._here:
            self._gate.set()
            self._came, self._gate = 0, asyncio.Event()


@dataclass(slots=True)
class Late:
    """How late, and whether together; changed between measurements."""

    latency: Latency | None = None
    rounds: Rounds | None = None
    waited: list[float] = field(default_factory=list)
    """Seconds of each episode, for answers alone."""

    @property
    def least(self) -> float:
        """What the answers alone take in any order: the slowest episode's, or all of them spread over the slots."""
        return max(max(self.waited), sum(self.waited) / _SLOTS)

    def around(self, opened: OpenClient) -> OpenClient:
        async def late(name: str, settings: Environment) -> EnvClient:
            return LateEnv(await opened(name, settings), self)

        return late


class LateEnv:
    """An environment whose steps take their time."""

    def __init__(self, client: EnvClient, late: Late) -> None:
        self._client = client
        self._late = late
        self._opened: dict[tuple[str, int], int] = {}

    async def spec(self) -> EnvSpec:
        return await self._client.spec()

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]:
        return await self._client.tasks(split)

    async def open(self, task: str, seed: int) -> Session:
        number = self._opened[task, seed] = self._opened.get((task, seed), -1) + 1
        draws = Random(f"{task} {seed} {number % 8}")
        return LateSession(await self._client.open(task, seed), self._late, draws)

    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        return await self._client.expert(task, seed)

    async def corpus(self) -> tuple[str, ...]:
        return await self._client.corpus()

    async def close(self) -> None:
        await self._client.close()


class LateSession:
    """One episode of it."""

    def __init__(self, session: Session, late: Late, draws: Random) -> None:
        self._session = session
        self._latency, self._rounds = late.latency, late.rounds
        self._draws = draws
        self._all_waited = late.waited
        self._waited = 0.0
        if self._rounds is not None:
            self._rounds.enter()

    @property
    def first(self) -> Observation:
        return self._session.first

    async def step(self, action: str) -> Step:
        if self._latency is not None:
            wait = min(self._latency(self._draws), 20.0)
            self._waited += wait
            await asyncio.sleep(wait)
        if self._rounds is not None:
            await self._rounds.together()
        return await self._session.step(action)

    async def advice(self) -> str | None:
        return await self._session.advice()

    async def noise_action(self, seed: int) -> str | None:
        return await self._session.noise_action(seed)

    async def close(self) -> None:
        self._all_waited.append(self._waited)
        self._waited = 0.0
        rounds, self._rounds = self._rounds, None
        if rounds is not None:
            rounds.leave()
        await self._session.close()


if __name__ == "__main__":
    sys.exit(main())
