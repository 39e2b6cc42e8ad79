"""A coroutine plays: what is known of its episode afterwards, and what becomes of one that breaks down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agym.runtime.agents.messages import Message
from agym.runtime.harness.registry import HarnessTask
from agym.runtime.rollout.episode import Episode
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
