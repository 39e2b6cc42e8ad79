"""Environments of verifiers' current line: an environment around a taskset, played in a real process by its harness."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from agym.envs.clients.client import InlineEnv
from agym.envs.conformance import CHECKS, Subject, run_checks
from agym.envs.errors import BadOption, EnvFault
from agym.envs.protocol import START_S, Deadlines
from agym.envs.registry import factory
from agym.envs.verifiers import Verifiers
from agym.envs.verifiers.folders import folder_of

pytestmark = pytest.mark.heavy

PACKAGE = Path(__file__).parent / "verifiers_current"
Make = Callable[..., Verifiers]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes an environment that is installed in the user's cache, with an interpreter that finds the small package."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[Verifiers] = []

    def of(environment: str, *, package: Path = PACKAGE, **options: Any) -> Verifiers:
        folder = folder_of(environment, {"XDG_CACHE_HOME": str(tmp_path)})
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        python = folder / "bin" / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH="{package}" exec "{sys.executable}" "$@"\n', "utf-8")
        python.chmod(0o755)
        (folder / "installed.json").write_text(json.dumps({"packages": [environment]}), "utf-8")
        made.append(Verifiers({"environment": environment, **options}))
        return made[-1]

    yield of
    for each in made:
        each.close()


def test_an_endless_taskset_is_read_as_far_as_asked(make: Make) -> None:
    env = make("riddles", tasks=3, held_out=2, args={"first": 5})
    assert (env.tasks("train"), env.tasks("test")) == (("train-0", "train-1", "train-2"), ("test-0", "test-1"))
    assert env.reset("test-1", 0).text == "Twice 9?"


def test_a_taskset_s_own_splits_are_ours(make: Make) -> None:
    env = make("halves")
    assert (len(env.tasks("train")), len(env.tasks("test"))) == (3, 3)
    assert env.reset("test-2", 0).text == "test 2"


def test_what_is_asked_first_gives_the_prompt_and_the_tools(make: Make) -> None:
    spec = make("riddles").describe()
    assert (spec.prompt, spec.max_turns) == ("You double.", 30)
    assert [tool.name for tool in spec.tools] == ["sums_double"]


def test_replies_calls_and_further_words_go_back_and_forth(make: Make) -> None:
    env = make("riddles", args={"first": 3})
    assert env.reset("train-0", 0).text == "Twice 3?"
    assert env.step("5").observation.text == "No. Again?"
    assert env.step('{"name": "sums_double", "arguments": {"number": 3}}').observation.text == "6"
    over = env.step("6")
    assert (over.terminated, over.reward) == (True, 0.5)
    assert over.info["metrics"] == {"right": 1.0, "turns": 3.0}


def test_the_limit_of_turns_ends_it_and_scores_it(make: Make) -> None:
    env = make("riddles", max_steps=2)
    env.reset("train-0", 0)
    env.step("7")
    over = env.step('{"name": "sums_double", "arguments": {"number": 4}}')
    assert (over.terminated, over.reward, over.info["stopped_by"]) == (True, 0.0, "max_turns")
    assert over.observation.text.startswith("8")


async def test_it_conforms(make: Make) -> None:
    make("riddles")  # only to have it installed
    client = InlineEnv(
        factory("verifiers", {"environment": "riddles", "tasks": 20, "held_out": 5}),
        deadlines=Deadlines(open_s=START_S, step_s=START_S),
    )
    results = await run_checks(Subject(client=client, num_tasks=2, neighbours=2), CHECKS)
    await client.close()
    assert [result for result in results if not result.passed] == []


def test_an_episode_that_fails_there_is_a_fault(make: Make) -> None:
    env = make("riddles", args={"fails": True})
    env.reset("train-0", 0)
    with pytest.raises(EnvFault, match="RuntimeError: no more riddles"):
        env.step("1")


@pytest.mark.parametrize(
    ("environment", "options", "says"),
    [
        ("riddles", {"args": {"colour": 1}}, "'riddles' does not load with these args: .*colour"),
        ("riddles:load", {}, "leave out the function"),
        ("nowhere", {}, "'nowhere' cannot be imported there"),
        ("json", {}, "is no taskset of the verifiers installed there .* 'verifiers<0.2'"),
        ("duel", {}, r"'duel' has 2 seats for a model \(.*other.*\)"),
    ],
)
def test_what_cannot_be_loaded_is_said(make: Make, environment: str, options: Mapping[str, Any], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        make(environment, **options).tasks("train")


def test_a_judge_of_the_line_is_the_one_of_the_options(make: Make) -> None:
    env = make("riddles", judge={"url": "http://127.0.0.1:1/v1"})
    assert env._environ()["PRIME_INFERENCE_URL"] == "http://127.0.0.1:1/v1"


def test_a_line_that_is_not_spoken_is_refused(make: Make, tmp_path: Path) -> None:
    package = tmp_path / "other"
    (package / "verifiers").mkdir(parents=True)
    (package / "verifiers" / "__init__.py").write_text('__version__ = "0.3.1"\n', "utf-8")
    with pytest.raises(BadOption, match=r"verifiers 0\.3\.1 is installed there, .* 'verifiers==0\.4\.\*'"):
        make("riddles", package=package).tasks("train")
