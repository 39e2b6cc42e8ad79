"""Clients that give up a request: what it started counts all the same, and once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from agym.dsl.model.algorithm import LossOn
from agym.envs.errors import EnvFault
from agym.envs.protocol import EnvSpec, Observation, Step, ToolSchema
from agym.runtime.harness.expert import ExpertSource, HarnessExpert
from agym.runtime.harness.session import HarnessSession
from agym.runtime.policy_endpoint.policy import PolicyRequest

from .conftest import TASK

TOOLS = tuple(
    ToolSchema(name=name, description="", parameters={"type": "object", "properties": {}}) for name in ("x", "y", "z")
)


@dataclass
class World:
    """An environment that takes its time, and an expert that does."""

    tools: tuple[ToolSchema, ...] = ()
    fault: EnvFault | None = None
    taken: list[str] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    may_choose: asyncio.Event = field(default_factory=asyncio.Event)
    replies: int = 0

    async def step(self, action: str) -> Step:
        await self.may_answer.wait()
        if self.fault is not None:
            raise self.fault
        self.taken.append(action)
        return Step(observation=Observation(text=f"did {action}"))

    async def choose(self, *actions: str) -> AsyncIterator[tuple[str, bool, str]]:
        for number, action in enumerate(actions):
            if number:
                await self.may_choose.wait()
            yield action, False, ""

    def open(self) -> HarnessSession:
        return HarnessSession(
            TASK,
            EnvSpec(name="slow", version="1", summary="", splits=(), tools=self.tools),
            Observation(text="go"),
            self.step,
            horizon=9,
            clock=lambda: 0.0,
            num_replies=lambda: self.replies,
        )

    async def show(self, *actions: str) -> tuple[HarnessSession, HarnessExpert]:
        session = self.open()
        source = ExpertSource(
            choose_actions=lambda *_: self.choose(*actions),
            write_step=lambda action, then: action,
            encode=lambda text: (),
            loss_on=LossOn.EXPERT,
        )
        expert = HarnessExpert(source=source, steps=self.choose(*actions), shown=session)
        await expert.prepare()
        return session, expert


async def give_up(work: Coroutine[Any, Any, Any]) -> None:
    """Begin a request, and leave before there is an answer."""
    request = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def said(expert: HarnessExpert) -> str | None:
    reply = await expert.reply(PolicyRequest(messages=()))
    return None if reply is None else reply.text


async def called(expert: HarnessExpert, *, parallel: bool) -> list[str]:
    reply = await expert.reply(PolicyRequest(messages=(), tools=TOOLS, parallel=parallel))
    return [] if reply is None else [call.name for call in reply.calls]


def test_an_experts_action_is_neither_repeated_nor_lost_where_its_request_is_given_up() -> None:
    async def test() -> None:
        world = World()
        world.may_answer.set()
        session, expert = await world.show("a", "b", "c")
        assert await said(expert) == "a"
        await session.step("a")
        await give_up(said(expert))
        world.may_choose.set()
        assert [await said(expert), await said(expert)] == ["b", "b"]
        await session.step("b")
        assert await said(expert) == "c"
        await session.step("c")
        assert await said(expert) is None

    run(test)


def test_a_choice_that_nobody_waits_for_ends_with_the_demonstration() -> None:
    async def test() -> None:
        world = World()
        world.may_answer.set()
        session, expert = await world.show("a", "b")
        await session.step("a")
        await give_up(said(expert))
        await expert.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(test)


def test_a_step_that_its_client_gave_up_is_taken_and_counted_once() -> None:
    async def test() -> None:
        world = World(replies=1)
        session, expert = await world.show("a", "b")
        world.may_choose.set()
        await give_up(session.step("a"))
        asking = asyncio.ensure_future(said(expert))  # it answers for what comes after that step
        await asyncio.sleep(0)
        world.replies = 2
        world.may_answer.set()
        assert await asking == "b"
        assert (world.taken, [(each.action, each.after) for each in session.steps]) == (["a"], [("a", 1)])
        assert (await session.step("b"))["observation"] == "did b"

    run(test)


def test_a_step_that_fails_after_its_client_is_gone_is_not_passed_over() -> None:
    async def test() -> None:
        world = World(fault=EnvFault("out of order"))
        session = world.open()
        await give_up(session.step("a"))
        world.may_answer.set()
        with pytest.raises(EnvFault, match="out of order"):
            await session.settle()

    run(test)


def test_an_episode_that_ends_leaves_the_step_that_is_under_way() -> None:
    async def test() -> None:
        world = World()
        session = world.open()
        await give_up(session.step("a"))
        await session.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(test)


def test_an_action_of_several_calls_is_given_call_by_call_where_the_client_takes_one_at_a_time() -> None:
    async def test() -> None:
        world = World(TOOLS)
        world.may_answer.set()
        world.may_choose.set()
        both = json.dumps([{"name": "x", "arguments": {}}, {"name": "y", "arguments": {}}])
        session, expert = await world.show(both, '{"name": "z", "arguments": {}}')
        given = []
        for _ in range(3):
            (name,) = await called(expert, parallel=False)
            assert await called(expert, parallel=False) == [name]
            given.append(name)
            await session.call(name, {})
        assert given == ["x", "y", "z"]
        session, expert = await World(TOOLS).show(both)
        assert await called(expert, parallel=True) == ["x", "y"]

    run(test)
