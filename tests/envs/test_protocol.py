from __future__ import annotations

import pytest
from agym.envs.errors import EnvFault, EpisodeOver, FaultKind, UnknownTask, error_from
from agym.envs.protocol import Observation, Score, Step, score_of


@pytest.mark.parametrize(("score", "expected"), [(Score.LAST, 0.25), (Score.MAX, 0.5), (Score.SUM, 1.0)])
def test_each_score_folds_the_rewards_in_its_own_way(score: Score, expected: float) -> None:
    assert score_of(score, [0.25, 0.5, 0.25]) == expected


@pytest.mark.parametrize("score", list(Score))
def test_an_episode_without_a_step_has_earned_nothing(score: Score) -> None:
    assert score_of(score, []) == 0.0


@pytest.mark.parametrize(("terminated", "truncated"), [(True, False), (False, True)])
def test_a_step_has_ended_the_episode_either_way(terminated: bool, truncated: bool) -> None:
    assert Step(observation=Observation(text=""), terminated=terminated, truncated=truncated).ended


def test_a_plain_step_goes_on() -> None:
    assert not Step(observation=Observation(text="")).ended


@pytest.mark.parametrize("error", [UnknownTask, EpisodeOver])
def test_a_mistake_survives_the_wire_as_its_own_class(error: type[Exception]) -> None:
    assert type(error_from(error.code, "why")) is error  # type: ignore[attr-defined]


def test_a_fault_keeps_its_kind() -> None:
    fault = error_from("env-fault", "why", "lost")
    assert isinstance(fault, EnvFault)
    assert fault.kind is FaultKind.LOST


def test_a_fault_of_a_kind_not_known_counts_as_a_crash() -> None:
    fault = error_from("env-fault", "why", "from the future")
    assert isinstance(fault, EnvFault)
    assert fault.kind is FaultKind.CRASHED


def test_a_code_not_known_is_a_fault_that_quotes_it() -> None:
    fault = error_from("teapot", "short and stout")
    assert isinstance(fault, EnvFault)
    assert fault.kind is FaultKind.GARBAGE
    assert "teapot" in str(fault)
