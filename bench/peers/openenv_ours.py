"""Our client on a server of OpenEnv's making that holds one session at a time: `openenv.sh` starts both."""

from __future__ import annotations

import asyncio
import sys

from agym.envs.clients.openenv import OpenEnvEnv
from agym.envs.protocol import Deadlines

EPISODES = 8


async def main(url: str) -> None:
    client = OpenEnvEnv(url, deadlines=Deadlines(open_s=120))
    spec = await client.spec()
    earned = await asyncio.gather(*(play(client, seed) for seed in range(EPISODES)))
    assert earned == [1.0] * EPISODES, earned
    await client.close()
    print(f"{EPISODES} episodes of {spec.name} at once, one after the other on its one session: each solved")


async def play(client: OpenEnvEnv, seed: int) -> float:
    session = await client.open("any", seed)
    total, number = 0.0, 0
    while not total and number < 9:
        number += 1
        total += (await session.step(str(number))).reward
    await session.close()
    return total


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
