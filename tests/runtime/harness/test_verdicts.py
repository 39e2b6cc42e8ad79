"""What an environment leaves to a judge where a harness plays."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from agym.envs.protocol import JudgeRequest, Step, YesNoQuestion
from agym.envs.wire import judge_to
from agym.runtime.harness.registry import HarnessTask
from agym.runtime.rollout.episode import Episode

from .conftest import OpenScene

ASKED = judge_to(JudgeRequest(questions=(YesNoQuestion(text="Done?", evidence={"said": "2"}),), reward=1.0))


def test_a_question_is_of_the_last_step_whatever_is_said_after_it(scene: OpenScene, echo: Any) -> None:
    class Asking(echo):  # type: ignore[misc]
        def step(self, action: str) -> Step:
            return replace(super().step("4"), terminated=action == "2", info={"judge": ASKED} if action == "2" else {})

    async def says_more(task: HarnessTask) -> None:
        """Takes two steps after its first reply, one after its second, none after its third."""
        from openai import AsyncOpenAI

        async with AsyncOpenAI(base_url=task.base_url, api_key=task.api_key, max_retries=0) as client:
            for actions in (("0", "1"), ("2",), ()):
                await client.chat.completions.create(model=task.model, messages=[{"role": "user", "content": "So?"}])
                for action in actions:
                    await task.session.step(action)

    async def once() -> Episode:
        async with scene(lambda number, prompt: f"reply {number}") as opened:
            return await opened.play(says_more, env=Asking)

    episode = asyncio.run(once())
    assert episode.fault == ""
    assert [turn.action for turn in episode.turns] == ["0", "1", "2", "reply 2"]
    assert episode.pending is not None
    assert episode.pending.turn == 2
