"""Environments of the verifiers ecosystem: episodes through a real process, and every way in which one can be wrong."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from agym.envs.clients.client import InlineEnv
from agym.envs.conformance import CHECKS, Subject, run_checks
from agym.envs.errors import BadOption, EnvFault, NotInstalled, UnknownTask
from agym.envs.protocol import START_S, Deadlines
from agym.envs.registry import factory
from agym.envs.verifiers import Verifiers
from agym.envs.verifiers.folders import folder_of, install, list_installed

pytestmark = pytest.mark.heavy

PACKAGE = Path(__file__).parent / "verifiers_package"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, where `guess` is installed: an interpreter that finds the small package, and its record."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = folder_of("guess", {"XDG_CACHE_HOME": str(tmp_path)})
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{PACKAGE}" exec "{sys.executable}" "$@"\n', "utf-8")
    python.chmod(0o755)
    (folder / "installed.json").write_text(json.dumps({"packages": ["guess"]}), "utf-8")
    return tmp_path


@pytest.fixture
def game(folders: Path) -> Iterator[Verifiers]:
    env = Verifiers({"environment": "guess", "args": {"games": 4}})
    yield env
    env.close()


def test_data_sets_are_splits(game: Verifiers) -> None:
    assert game.tasks("train") == ("train-0", "train-1", "train-2", "train-3")
    assert game.tasks("test") == ("test-0", "test-1", "test-2")
    with pytest.raises(UnknownTask, match="no task 'train-4'"):
        game.reset("train-4", 0)


def test_the_system_prompt_is_the_spec_s_and_the_rest_is_shown(game: Verifiers) -> None:
    assert game.describe().prompt == "Guess a number from 0 to 9."
    assert game.describe().max_turns == 30
    assert game.reset("train-1", 0).text == "Game 1."


def test_replies_go_back_and_forth_until_the_rubric_scores_them(game: Verifiers) -> None:
    game.reset("train-1", 0)
    lower = game.step("9")
    assert (lower.observation.text, lower.reward, lower.ended) == ("lower", 0.0, False)
    over = game.step("7")
    assert (over.reward, over.terminated) == (1.0, True)
    assert over.info["metrics"] == {"right": 1.0, "turns": 2.0}


def test_the_limit_of_turns_ends_an_episode_and_scores_it(folders: Path) -> None:
    env = Verifiers({"environment": "guess", "max_steps": 2})
    env.reset("train-0", 0)
    assert not env.step("5").ended
    over = env.step("5")
    assert (over.terminated, over.reward, over.info["stopped_by"]) == (True, 0.0, "turns")
    env.close()


def test_a_call_reaches_the_environment_as_one(folders: Path) -> None:
    env = Verifiers({"environment": "guess:load_tool"})
    assert [tool.name for tool in env.describe().tools] == ["roll"]
    assert env.tasks("test") == ()
    env.reset("train-0", 0)
    assert env.step("roll it").observation.text == "Call the tool."
    assert env.step('{"name": "roll", "arguments": {"number": 4}}').reward == 1.0
    env.close()


async def test_it_conforms(folders: Path) -> None:
    client = InlineEnv(
        factory("verifiers", {"environment": "guess"}), deadlines=Deadlines(open_s=START_S, step_s=START_S)
    )
    results = await run_checks(Subject(client=client, num_tasks=3, neighbours=6), CHECKS)
    await client.close()
    assert [result for result in results if not result.passed] == []


def test_what_is_not_installed_says_the_command(folders: Path) -> None:
    env = Verifiers({"environment": "vf-other"})
    with pytest.raises(NotInstalled, match="agym envs install verifiers vf_other"):
        env.tasks("train")


@pytest.mark.parametrize(
    ("environment", "args", "says"),
    [
        ("guess.nowhere", {}, "no module 'guess.nowhere'"),
        ("guess:load_other", {}, "no function 'load_other'"),
        ("guess:load_nothing", {}, "makes no verifiers environment, but a str"),
        ("guess", {"colour": 1}, "does not load with these args: .*colour"),
    ],
)
def test_what_cannot_be_loaded_is_said(folders: Path, environment: str, args: dict[str, int], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        Verifiers({"environment": environment, "args": args}).tasks("train")


def test_a_process_that_dies_is_a_fault_and_the_next_episode_has_another(folders: Path) -> None:
    env = Verifiers({"environment": "guess:load_die"})
    for _ in range(2):
        assert env.reset("train-0", 0).text.endswith("Game 1.")
        with pytest.raises(EnvFault, match="process died"):
            env.step("1")
    env.close()


def test_a_reward_beyond_the_range_names_the_option(folders: Path) -> None:
    env = Verifiers({"environment": "guess", "max_score": 0.5})
    env.reset("train-1", 0)
    with pytest.raises(EnvFault, match="max_score"):
        env.step("7")
    env.close()


@pytest.mark.parametrize(
    ("environment", "args", "says"),
    [
        ("guess:load_judged", {"trouble": "judge"}, "got no answer: RuntimeError: Unexpected error when calling judge"),
        ("guess:load_unscored", {}, "the rubric gave no reward"),
    ],
)
def test_an_episode_that_could_not_be_scored_is_a_fault(
    folders: Path, environment: str, args: dict[str, str], says: str
) -> None:
    env = Verifiers({"environment": environment, "args": args})
    env.reset("train-0", 0)
    with pytest.raises(EnvFault, match=says):
        env.step("7")
    env.close()


def test_a_reward_function_that_fails_by_itself_gives_0_as_in_verifiers(folders: Path) -> None:
    env = Verifiers({"environment": "guess:load_judged", "args": {"trouble": "bug"}})
    env.reset("train-0", 0)
    over = env.step("7")
    assert (over.reward, over.info["metrics"]) == (1.0, {"right": 1.0, "turns": 1.0, "ask": 0.0})
    env.close()


def test_a_judge_without_its_key_is_refused(folders: Path) -> None:
    judge = {"url": "http://127.0.0.1:1/v1", "key_variable": "NO_SUCH_KEY_OF_A_JUDGE"}
    with pytest.raises(BadOption, match="NO_SUCH_KEY_OF_A_JUDGE"):
        Verifiers({"environment": "guess", "judge": judge}).tasks("train")


def test_a_judges_key_that_no_header_can_hold_is_refused(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_A_JUDGE", "sk-\nsecret")
    judge = {"url": "http://127.0.0.1:1/v1", "key_variable": "KEY_OF_A_JUDGE"}
    with pytest.raises(BadOption, match=r"^the environment variable KEY_OF_A_JUDGE is no key"):
        Verifiers({"environment": "guess", "judge": judge}).tasks("train")


def test_noise_and_corpus_are_text(game: Verifiers) -> None:
    assert game.noise_action(Random(0)) == game.noise_action(Random(0))
    assert "Game 3." in list(game.corpus())


def test_what_is_installed_is_listed(folders: Path) -> None:
    assert [each.name for each in list_installed({"XDG_CACHE_HOME": str(folders)})] == ["guess"]


def test_a_name_that_is_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="no name of a module"):
        install("../x", (), {"XDG_CACHE_HOME": str(tmp_path)})
