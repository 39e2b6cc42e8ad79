"""The shipped agents on real SDKs play the echo world, each as its SDK speaks to the endpoint."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from agym.runtime.rollout.episode import Ending, Episode

from .conftest import HORIZON, OpenScene

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-harness/bin/python"

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not PYTHON.exists(), reason="the SDKs are not installed: 'make harnesses' does that"),
]

AGENTS = {"openai_agents_agent.py": 1, "langgraph_agent.py": 1, "smolagents_agent.py": 0}
"""Segments of a whole episode; 0 where each request begins one."""


def call(action: str) -> str:
    return f'<tool_call>\n{{"name": "act", "arguments": {{"action": "{action}"}}}}\n</tool_call>'


def answer(number: int, prompt: str) -> str:
    """Say what was asked for last."""
    return call(re.findall(r"say (\d)", prompt)[-1])


def play(scene: OpenScene, script: str, lines: object = answer) -> tuple[Episode, int]:
    async def once() -> tuple[Episode, int]:
        async with scene(lines) as opened:  # type: ignore[arg-type]
            episode = await opened.play([str(PYTHON), str(ROOT / "recipes/harness" / script)])
            return episode, len(opened.speaker.requests)

    return asyncio.run(once())


@pytest.mark.parametrize("script", AGENTS)
def test_it_solves_its_task_by_calls_and_each_token_is_in_one_segment(scene: OpenScene, script: str) -> None:
    episode, asked = play(scene, script)
    assert episode.harness is not None
    assert episode.fault == ""
    assert (episode.ending, episode.success, asked) == (Ending.DONE, True, 2), episode.harness.log
    assert len(episode.segments) == (AGENTS[script] or asked)
    drawn = sum(int(each.sampled.sum()) for each in episode.segments)
    assert drawn == episode.harness.completion_tokens > 0
    assert [turn.reward for turn in episode.turns] == [0.5, 0.5]


@pytest.mark.parametrize("script", AGENTS)
def test_one_that_is_wrong_to_the_end_has_used_its_turns_and_is_no_fault(scene: OpenScene, script: str) -> None:
    episode, _ = play(scene, script, lambda number, prompt: call("4"))
    assert episode.harness is not None
    assert (episode.fault, episode.success) == ("", False), episode.harness.log
    assert episode.ending is Ending.HORIZON
    assert len([turn for turn in episode.turns if turn.action is not None]) >= HORIZON


@pytest.mark.parametrize("script", AGENTS)
def test_an_expert_shows_its_task_through_it(scene: OpenScene, script: str) -> None:
    async def once() -> Episode:
        async with scene(answer) as opened:
            return await opened.show(command=[str(PYTHON), str(ROOT / "recipes/harness" / script)])

    episode = asyncio.run(once())
    assert episode.harness is not None
    assert (episode.fault, episode.ending, episode.success) == ("", Ending.DONE, True), episode.harness.log
    assert [turn.reward for turn in episode.turns] == [0.5, 0.5]
    assert all(segment.sampled.any() for segment in episode.segments)


def test_a_reply_without_a_call_ends_an_agent_that_takes_it_for_its_answer(scene: OpenScene) -> None:
    for script in ("openai_agents_agent.py", "langgraph_agent.py"):
        episode, asked = play(scene, script, lambda number, prompt: "I do not know.")
        assert (episode.fault, episode.success, asked) == ("", False, 1)


def test_a_reply_that_a_limit_cuts_off_is_a_failure_of_the_policy_and_no_fault(scene: OpenScene) -> None:
    for script in ("openai_agents_agent.py", "langgraph_agent.py"):
        episode, asked = play(scene, script, lambda number, prompt: "x " * 400)
        assert (episode.fault, episode.success, asked) == ("", False, 1)
