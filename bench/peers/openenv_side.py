"""OpenEnv's generic client, as its users have it, on one of our servers: `openenv.sh` starts both."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from openenv.core.generic_client import GenericEnvClient

GOAL = 7


async def main(url: str) -> None:
    async with GenericEnvClient(base_url=url) as env:
        await solved(env)
        try:
            await env.step({"wrong": 1})
        except RuntimeError as error:
            print(f"a wrong action is told: {error}")
        else:
            raise AssertionError("a wrong action was taken")
        print(f"another task: {(await env.reset(split='test', index=1)).observation['text']}")
    several = [GenericEnvClient(base_url=url) for _ in range(8)]
    await asyncio.gather(*(each.connect() for each in several))
    texts = {(await each.reset(seed=seed)).observation["text"] for seed, each in enumerate(several)}
    assert len(texts) == len(several), texts
    await asyncio.gather(*(each.close() for each in several))
    print(f"{len(several)} sessions side by side")


async def solved(env: Any) -> None:
    result = await env.reset(seed=3, task_id=f"reach-{GOAL}")
    earned = 0.0
    while not result.done:
        result = await env.step({"text": "add 1"})
        earned += result.reward
    state = await env.state()
    assert abs(earned - 1.0) < 1e-9, earned
    print(f"solved in {state['step_count']} steps: {result.observation['text']}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    with GenericEnvClient(base_url=sys.argv[1]).sync() as env:
        print(f"without asyncio: {env.reset(seed=1).observation['text']}")
