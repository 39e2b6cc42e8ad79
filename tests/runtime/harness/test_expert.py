"""An expert plays through a harness: its demonstrations have the form of the agent that is trained afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np
import pytest
from agym.dsl.model.algorithm import LossOn
from agym.envs.errors import EnvFault
from agym.runtime.backends.hf_models import UnknownWord
from agym.runtime.data.demonstrations import NoSolution
from agym.runtime.errors import RunError
from agym.runtime.harness.registry import HarnessTask
from agym.runtime.rollout.episode import Ending, Episode

from .conftest import OpenScene

Agent = Callable[[HarnessTask, Any], Awaitable[Mapping[str, Any] | None]]


def never(number: int, prompt: str) -> str:
    raise AssertionError("the policy is not asked where its expert replies")


def show(scene: OpenScene, agent: Agent, **settings: Any) -> Episode:
    """Let the expert play one episode in the hands of an agent."""

    async def harness(task: HarnessTask) -> Mapping[str, Any] | None:
        from openai import AsyncOpenAI

        async with AsyncOpenAI(base_url=task.base_url, api_key=task.api_key, max_retries=0) as client:
            return await agent(task, client)

    async def once() -> Episode:
        async with scene(never) as opened:
            return await opened.show(harness, **settings)

    return asyncio.run(once())


async def talks(task: HarnessTask, client: Any) -> None:
    """Takes each reply as an action, in one conversation."""
    messages: list[Any] = [{"role": "user", "content": task.session.first}]
    while not task.session.ended:
        reply = await client.chat.completions.create(model=task.model, messages=messages)
        said = reply.choices[0].message.content
        step = await task.session.step(said)
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": step["observation"]}]


async def calls(task: HarnessTask, client: Any) -> None:
    """Acts by calls, and shows past ones as text of its own, so that each request begins a segment."""
    past = ""
    while not task.session.ended:
        messages: list[Any] = [{"role": "user", "content": f"{task.session.first} {past}".strip()}]
        reply = await client.chat.completions.create(model=task.model, messages=messages, tools=task.session.tools)
        (call,) = reply.choices[0].message.tool_calls
        arguments = json.loads(call.function.arguments)
        step = await task.session.call(call.function.name, arguments)
        past = step["observation"]


def learnt(episode: Episode) -> list[list[int]]:
    """Runs of trained tokens, of all segments."""
    found = []
    for segment in episode.segments:
        edges = np.flatnonzero(np.diff(segment.sampled, prepend=False, append=False))
        found += [segment.ids[a:b].tolist() for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return found


def test_it_solves_the_task_in_an_agents_own_conversation_and_its_replies_alone_are_learnt(scene: OpenScene) -> None:
    episode = show(scene, talks)
    assert (episode.ending, episode.success, episode.fault) == (Ending.DONE, True, "")
    assert len(episode.segments) == 1
    assert len(learnt(episode)) == len(episode.turns) == 2
    assert episode.turns[0].reply == episode.turns[0].action


def test_it_calls_the_tools_that_a_request_offers(scene: OpenScene) -> None:
    episode = show(scene, calls)
    assert (episode.success, len(episode.segments)) == (True, 2)
    assert '"name": "act"' in episode.turns[0].reply
    ends = [(turn.start, turn.end) for turn in episode.turns]
    assert [segment.sampled.nonzero()[0][[0, -1]].tolist() for segment in episode.segments] == [
        [start, end - 1] for start, end in ends
    ]


def test_a_tool_that_must_be_called_is_begun_for_it(scene: OpenScene) -> None:
    async def forces(task: HarnessTask, client: Any) -> None:
        messages: list[Any] = [{"role": "user", "content": task.session.first}]
        reply = await client.chat.completions.create(
            model=task.model,
            messages=messages,
            tools=task.session.tools,
            tool_choice={"type": "function", "function": {"name": "act"}},
        )
        (call,) = reply.choices[0].message.tool_calls
        await task.session.call(call.function.name, json.loads(call.function.arguments))

    episode = show(scene, forces)
    assert [turn.reward for turn in episode.turns] == [0.5]
    free = show(scene, calls)
    assert len(learnt(episode)[0]) < len(learnt(free)[0])


def test_another_tool_that_must_be_called_ends_the_demonstration_without_a_fault(scene: OpenScene) -> None:
    finish = {"type": "function", "function": {"name": "finish", "parameters": {"type": "object", "properties": {}}}}

    async def finishes(task: HarnessTask, client: Any) -> None:
        await client.chat.completions.create(
            model=task.model, messages=[{"role": "user", "content": task.session.first}]
        )
        await client.chat.completions.create(
            model=task.model,
            messages=[{"role": "user", "content": "done?"}],
            tools=[finish],
            tool_choice={"type": "function", "function": {"name": "finish"}},
        )

    episode = show(scene, finishes)
    assert (episode.fault, episode.ending, len(episode.turns)) == ("", Ending.HORIZON, 1)


def test_until_the_agent_acts_it_says_the_same_and_after_the_end_nothing(scene: OpenScene) -> None:
    said: list[str] = []

    async def asks_twice(task: HarnessTask, client: Any) -> None:
        while True:
            for _ in range(2):
                reply = await client.chat.completions.create(
                    model=task.model, messages=[{"role": "user", "content": f"{task.session.first} {len(said)}"}]
                )
                said.append(reply.choices[0].message.content)
            await task.session.step(said[-1])

    episode = show(scene, asks_twice)
    assert (episode.fault, episode.ending, episode.success) == ("", Ending.DONE, True)
    assert len(said) == 4
    assert (said[0], said[2]) == (said[1], said[3])


def test_noise_is_shown_and_not_learnt_and_under_all_everything_is_learnt_once(scene: OpenScene) -> None:
    noisy = [show(scene, talks, seed=seed, noise=0.6) for seed in range(6)]
    assert any(len(learnt(each)) < len(each.turns) for each in noisy)
    acted = [show(scene, talks, seed=seed, noise=0.6, loss_on=LossOn.ACTIONS) for seed in range(6)]
    assert all(len(learnt(each)) == len(each.turns) for each in acted)
    (segment,) = show(scene, talks, loss_on=LossOn.ALL).segments
    assert not segment.sampled[0]
    assert segment.sampled[1:].all()


def test_under_all_a_branch_learns_nothing_that_its_parent_learns(scene: OpenScene) -> None:
    async def branches(task: HarnessTask, client: Any) -> None:
        first: list[Any] = [{"role": "user", "content": task.session.first}]
        reply = await client.chat.completions.create(model=task.model, messages=first)
        first.append({"role": "assistant", "content": reply.choices[0].message.content})
        for more in ("one", "two"):
            await client.chat.completions.create(model=task.model, messages=[*first, {"role": "user", "content": more}])
        await task.session.step(reply.choices[0].message.content)

    trunk, branch = show(scene, branches, loss_on=LossOn.ALL).segments
    shared = int((trunk.ids[: len(branch.ids)] == branch.ids[: len(trunk.ids)]).argmin())
    assert shared > 4
    assert trunk.sampled[1:].all()
    assert not branch.sampled[:shared].any()
    assert branch.sampled[shared:].all()


def test_what_does_not_fit_the_context_ends_it(scene: OpenScene) -> None:
    async def rambles(task: HarnessTask, client: Any) -> None:
        await talks_once(task, client, task.session.first)
        await talks_once(task, client, "x " * 9000)

    async def talks_once(task: HarnessTask, client: Any, text: str) -> None:
        await client.chat.completions.create(model=task.model, messages=[{"role": "user", "content": text}])

    episode = show(scene, rambles)
    assert (episode.fault, episode.ending, len(episode.turns)) == ("", Ending.BUDGET, 1)


def test_a_task_without_a_solution_is_named_as_such(scene: OpenScene, echo: Any) -> None:
    class Silent(echo):  # type: ignore[misc]
        def advice(self) -> str | None:
            return None

    with pytest.raises(NoSolution, match="environment 'echo' has no solution of task 'train-0'"):
        show(scene, talks, env=Silent)


def test_an_expert_that_fails_is_a_fault_of_the_environment(scene: OpenScene, echo: Any) -> None:
    class Failing(echo):  # type: ignore[misc]
        def advice(self) -> str | None:
            if self._count:
                raise EnvFault("the expert is out of order")
            advice: str | None = super().advice()
            return advice

        def reset(self, task: str, seed: int) -> Any:
            self._count = 0
            return super().reset(task, seed)

        def step(self, action: str) -> Any:
            self._count += 1
            return super().step(action)

    episode = show(scene, talks, env=Failing)
    assert episode.ending is Ending.ENV_FAULT
    assert "the expert is out of order" in episode.fault


def test_a_word_that_the_model_does_not_know_stops_the_run(scene: OpenScene) -> None:
    def refuse(text: str) -> list[int]:
        raise UnknownWord(f"no word '{text}'")

    with pytest.raises(RunError, match="demonstrations, a reply: no word"):
        show(scene, talks, encode=refuse)
