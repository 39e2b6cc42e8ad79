"""A coroutine plays: what is known of its episode afterwards, and what becomes of one that breaks down."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from agym.envs.errors import EnvFault
from agym.runtime.agents.messages import Message
from agym.runtime.harness.registry import HarnessTask
from agym.runtime.rollout.episode import Ending, Episode
from agym.runtime.steps.judge import render_conversation

from .conftest import OpenScene

Agent = Callable[[HarnessTask, Any], Awaitable[None]]


def play(scene: OpenScene, agent: Agent, **settings: Any) -> Episode:
    async def harness(task: HarnessTask) -> None:
        from openai import AsyncOpenAI

        async with AsyncOpenAI(base_url=task.base_url, api_key=task.api_key, max_retries=0) as client:
            await agent(task, client)

    async def once() -> Episode:
        async with scene(lambda number, prompt: "1") as opened:
            return await opened.play(harness, **settings)

    return asyncio.run(once())


async def ask(task: HarnessTask, client: Any, *told: tuple[str, str]) -> str:
    messages = [{"role": role, "content": text} for role, text in told]
    reply = await client.chat.completions.create(model=task.model, messages=messages)
    return str(reply.choices[0].message.content)


def test_a_judge_reads_what_the_agent_was_told_before_its_first_reply(scene: OpenScene) -> None:
    async def agent(task: HarnessTask, client: Any) -> None:
        said = await ask(task, client, ("developer", "be brief"), ("user", task.session.first))
        await task.session.step(said)
        await ask(task, client, ("user", "what was that?"))

    episode = play(scene, agent)
    assert [each.role for each in episode.opening] == ["system", "user"]
    system, user = episode.opening
    assert (system, user.content != "") == (Message("system", "be brief"), True)
    first, second, third, *_ = render_conversation(episode, len(episode.turns)).splitlines()
    assert (first, second, third) == (
        '{"told": "be brief"}',
        f'{{"told": "{user.content}"}}',
        '{"agent": "1"}',
    )


async def goes_on_regardless(task: HarnessTask, client: Any) -> None:
    said = await ask(task, client, ("user", task.session.first))
    with suppress(EnvFault):
        await task.session.step(said)
    await asyncio.sleep(60)


def test_an_environment_that_fails_is_a_fault_whatever_the_agent_makes_of_it(scene: OpenScene, echo: Any) -> None:
    class Failing(echo):  # type: ignore[misc]
        def step(self, action: str) -> Any:
            raise EnvFault("out of order")

    episode = play(scene, goes_on_regardless, env=Failing)
    assert (episode.ending, "out of order" in episode.fault) == (Ending.ENV_FAULT, True)


async def cancels_itself(task: HarnessTask, client: Any) -> None:
    await ask(task, client, ("user", "hi"))
    raise asyncio.CancelledError


async def exits(task: HarnessTask, client: Any) -> None:
    await ask(task, client, ("user", "hi"))
    sys.exit(3)


@pytest.mark.parametrize(("agent", "said"), [(cancels_itself, "cancelled its own"), (exits, "SystemExit: 3")])
def test_a_coroutine_that_ends_itself_is_a_fault_and_ends_nothing_else(
    scene: OpenScene, agent: Agent, said: str
) -> None:
    episode = play(scene, agent)
    assert (episode.ending, said in episode.fault) == (Ending.ENV_FAULT, True)
