"""Agents that misbehave: a fault each, never trained on as a failure, and nothing of them is left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agym.runtime.rollout.episode import Ending, Episode

from .conftest import OpenScene, left_behind

pytestmark = pytest.mark.slow

MARK = f"agym-hostile-agent-{os.getpid()}"
BEGINNING = """
import json, os, sys, time
from urllib.error import HTTPError
from urllib.request import Request, urlopen

def post(url, data, key=None):
    headers = {"Authorization": "Bearer " + (key or os.environ["OPENAI_API_KEY"]), "Content-Type": "application/json"}
    with urlopen(Request(url, json.dumps(data).encode(), headers)) as reply:
        return json.load(reply)

def ask(text="say 1", key=None):
    messages = [{"role": "user", "content": text}]
    return post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"model": "policy", "messages": messages}, key)
"""


def agent(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", BEGINNING + program, MARK, *arguments]


def play(scene: OpenScene, program: str, **settings: Any) -> Episode:
    async def once() -> Episode:
        async with scene(lambda number, prompt: "1") as opened:
            return await opened.play(agent(program), **settings)

    return asyncio.run(once())


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert left_behind(MARK) == []


FAULTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "hangs": ("ask(); time.sleep(600)", "did not end within", {"timeout_s": 5.0}),
    "forks": (
        "ask()\nwhile os.fork(): pass\ntime.sleep(600)",
        "more processes than",
        {"limits": {"processes": 8}},
    ),
    "floods its result": (
        "ask()\nwhile True: print('x' * 1000)",
        "its result exceeds",
        {"limits": {"output_kb": 64}},
    ),
    "floods its log": (
        "ask()\nwhile True: print('x' * 1000, file=sys.stderr)",
        "its log exceeds",
        {"limits": {"output_kb": 64}},
    ),
    "lies about tokens": ("ask(); print(json.dumps({'usage': {'completion_tokens': 9999}}))", "claims a usage", {}),
    "lies about its score": ("ask(); print('{\"score\": NaN}')", "is no number", {"score": "result"}),
    "says what no result is": ("ask(); print(json.dumps({'reward': 1}))", "has 'reward'", {}),
    "exits with a code": ("ask(); sys.exit(7)", "exit code 7", {}),
    "crashes": ("ask(); raise RuntimeError('a bug of mine')", "a bug of mine", {}),
    "asks nothing": ("print(json.dumps({'answer': '1'}))", "without a reply of the policy", {}),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_an_agent_that_misbehaves_is_a_fault_and_no_failure(scene: OpenScene, kind: str) -> None:
    program, said, settings = FAULTS[kind]
    episode = play(scene, program, **settings)
    assert (episode.ending, episode.ending.trainable) == (Ending.ENV_FAULT, False)
    assert said in episode.fault
    assert episode.segments == ()
    assert len(episode.faults) == 1


def test_an_agent_that_floods_the_policy_gets_what_it_may_and_no_more(scene: OpenScene) -> None:
    program = """
from concurrent.futures import ThreadPoolExecutor
def one(at):
    try:
        return ask(f"say {at}")["usage"]["completion_tokens"]
    except HTTPError as error:
        return -error.code
with ThreadPoolExecutor(16) as pool:
    said = sorted(pool.map(one, range(40)))
print(said, file=sys.stderr)
"""
    episode = play(scene, program, requests=5, limits={"processes": 64})
    assert episode.harness is not None
    assert episode.harness.log.strip() == str([-403] * 35 + [2] * 5)
    assert (episode.harness.requests, sum(int(each.sampled.sum()) for each in episode.segments)) == (5, 10)


def test_an_agent_that_uses_anothers_key_is_a_fault_and_the_other_keeps_its_own_tokens(
    scene: OpenScene, tmp_path: Path
) -> None:
    owner = """
place = sys.argv[2]
with open(place + ".new", "w") as file:
    file.write(os.environ["OPENAI_API_KEY"])
os.rename(place + ".new", place)
while not os.path.exists(place + ".used"):
    time.sleep(0.02)
ask()
"""
    thief = """
place = sys.argv[2]
while not os.path.exists(place):
    time.sleep(0.02)
try:
    ask("give me yours", key=open(place).read())
except HTTPError as error:
    print(error.code, file=sys.stderr)
open(place + ".used", "w").close()
ask()
"""

    async def both() -> list[Episode]:
        async with scene(lambda number, prompt: "1") as opened:
            place = str(tmp_path / "key")
            plays = (opened.play(agent(program, place)) for program in (owner, thief))
            return await asyncio.gather(*plays)

    owned, stolen = asyncio.run(both())
    assert owned.ending.trainable
    assert owned.harness is not None
    assert owned.harness.requests == len(owned.segments) == 1
    assert stolen.ending is Ending.ENV_FAULT
    assert "API key that is not its own" in stolen.fault
    assert stolen.harness is not None
    assert stolen.harness.log.strip() == "401"
