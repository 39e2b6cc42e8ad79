"""From episodes to rewards: facts, terms, bounds, the scale of each environment, and where each reward sits."""

from __future__ import annotations

import random
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from agym.dsl.expression.expr import Expr
from agym.dsl.expression.scopes import SCOPES
from agym.dsl.model.recipe import Overlong, Reward, RewardNormalise
from agym.runtime.learning.reward import (
    Moments,
    RewardError,
    Scored,
    StepNames,
    assign_turn_rewards,
    episode_facts,
    group_facts,
    normalise_rewards,
    score_episode,
    turn_facts,
)
from agym.runtime.learning.turn_rewards import TurnRewardsError
from agym.runtime.rollout.episode import Ending, Episode, Task
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .factories import make_episode, make_scored, make_segment, make_turn

CLOCK: StepNames = {"step": 3.0, "total_step": 13.0, "stage": "explore", "stage_index": 1.0}
PROMPT = 4
BETWEEN = 2


def played(
    *lengths: int,
    rewards: tuple[float, ...] | None = None,
    invalid: tuple[int, ...] = (),
    environment: str = "maze",
    difficulty: str = "",
    **rest: Any,
) -> Episode:
    """An episode of one segment: a prompt of 4 tokens, turns of these lengths, 2 observation tokens after each."""
    turns, at = [], PROMPT
    for k, length in enumerate(lengths):
        action = None if k in invalid else "go"
        turns.append(make_turn(at, at + length, action=action, reward=rewards[k] if rewards else 0.0, state=f"s{k}"))
        at += length + BETWEEN
    sampled = np.zeros(at, np.bool_)
    for turn in turns:
        sampled[turn.start : turn.end] = True
    task = Task(environment=environment, id="t1", seed=0, difficulty=difficulty)
    return make_episode([make_segment(sampled)], turns, task=task, **rest)


def scored(episode: Episode, /, *, invalid_turn: float = 0.0, context_tokens: int = 100, **settings: Any) -> Scored:
    return score_episode(
        episode, Reward(**settings), invalid_turn=invalid_turn, context_tokens=context_tokens, step_names=CLOCK
    )


def earned(outcome: float, environment: str = "maze") -> Scored:
    return make_scored(played(1, environment=environment), outcome)


# --- facts ----------------------------------------------------------------------------------------------------------


def known(facts: Any, scope: str) -> dict[str, Any]:
    return {name: facts.value(name) for name in SCOPES[scope].facts}


EPISODE = played(3, 2, invalid=(1,), rewards=(0.5, 0.0), score=0.25, ending=Ending.HORIZON, difficulty="2")


@pytest.mark.parametrize(
    ("scope", "facts"),
    [
        ("episode", episode_facts(EPISODE, CLOCK)),
        ("turn", turn_facts(EPISODE, 0, CLOCK)),
        ("group", group_facts([scored(EPISODE)], CLOCK)),
    ],
)
def test_just_the_names_that_expressions_may_use_are_supplied(scope: str, facts: Any) -> None:
    assert facts.scope == scope
    assert set(facts.values) == set(SCOPES[scope].facts)


def test_facts_of_an_episode() -> None:
    assert known(episode_facts(EPISODE, CLOCK), "episode") == {
        **CLOCK,
        "score": 0.25,
        "success": False,
        "turns": 2.0,
        "sampled_tokens": 5.0,
        "total_tokens": 13.0,
        "invalid_turns": 1.0,
        "horizon": 8.0,
        "done": False,
        "truncated": True,
        "ending": "horizon",
        "environment": "maze",
        "difficulty": 2.0,
    }


def test_facts_of_a_turn() -> None:
    facts = turn_facts(EPISODE, 1, CLOCK)
    own = {name: facts.value(name) for name in ("turn_reward", "turn_index", "turn_invalid", "turn_tokens")}
    assert own == {"turn_reward": 0.0, "turn_index": 1.0, "turn_invalid": True, "turn_tokens": 2.0}
    assert facts.value("score") == 0.25


def test_facts_of_a_group() -> None:
    group = [earned(1.0), scored(played(1, score=0.5, success=True)), earned(0.0)]
    facts = group_facts(group, CLOCK)
    own = {name: facts.value(name) for name in ("mean", "std", "min", "max", "size", "solved", "environment")}
    assert own == {
        "mean": 0.5,
        "std": 0.5,
        "min": 0.0,
        "max": 1.0,
        "size": 3.0,
        "solved": pytest.approx(1 / 3),
        "environment": "maze",
    }


def test_equal_rewards_have_exactly_no_spread() -> None:
    assert group_facts([earned(0.1)] * 3, CLOCK).value("std") == 0.0


def test_a_difficulty_that_is_no_number_is_not_known() -> None:
    assert Expr("difficulty > 1").evaluate(episode_facts(played(1, difficulty="hard"), CLOCK)) is None


# --- terms ----------------------------------------------------------------------------------------------------------


def test_by_default_the_score_is_the_outcome_and_turns_earn_nothing() -> None:
    found = scored(played(2, 1, rewards=(0.5, 0.5), score=0.75))
    assert (found.outcome, found.turn_rewards, found.total) == (0.75, (0.0, 0.0), 0.75)


def test_the_outcome_is_an_expression_of_the_episode() -> None:
    episode = played(2, 1, 1, invalid=(0, 2), score=1.0)
    assert scored(episode, episode=Expr("score - 0.25 * invalid_turns")).outcome == 0.5


def test_each_turn_has_its_own_expression() -> None:
    episode = played(2, 1, rewards=(3.0, 5.0))
    assert scored(episode, turn=Expr("turn_reward * 0.5 + turn_index")).turn_rewards == (1.5, 3.5)


def test_a_reply_without_an_action_costs_at_its_own_turn() -> None:
    found = scored(played(1, 1, 1, invalid=(1,), score=1.0), invalid_turn=0.125)
    assert found.turn_rewards == (0.0, -0.125, 0.0)
    assert found.total == 0.875


@pytest.mark.parametrize(("length", "taken_off"), [(4, 0.0), (10, 0.0), (15, 0.5), (20, 1.0), (30, 1.0)])
def test_the_penalty_rises_towards_the_budget(length: int, taken_off: float) -> None:
    # used are the prompt, the turn and the observation after it: 6 tokens besides the sampled ones
    found = scored(played(length, score=1.0), context_tokens=26, overlong=Overlong(buffer=10, penalty=2.0))
    assert found.outcome == pytest.approx(1.0 - 2.0 * taken_off)


def test_bounds_hold_for_the_outcome_after_all_its_terms_and_for_no_turn() -> None:
    episode = played(9, invalid=(0,), score=5.0)
    found = scored(
        episode,
        clip=(-1.0, 1.0),
        overlong=Overlong(buffer=1, penalty=9.0),
        context_tokens=10,
        invalid_turn=3.0,
    )
    assert (found.outcome, found.turn_rewards) == (-1.0, (-3.0,))
    assert scored(episode, clip=(-1.0, 1.0)).outcome == 1.0


def test_an_episode_without_turns_keeps_its_outcome() -> None:
    assert scored(played(score=0.5, ending=Ending.BUDGET)).total == 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"episode": Expr("1 / score")},
            "'reward.episode' has no value for task 't1' of 'maze': '1 / score' must be a finite number",
        ),
        ({"turn": Expr("difficulty")}, "'reward.turn' has no value"),
    ],
)
def test_a_reward_that_is_no_number_is_refused_where_it_arises(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RewardError, match=message):
        scored(played(1, score=0.0), **settings)


# --- scale of each environment --------------------------------------------------------------------------------------

BY_ENVIRONMENT = Reward(normalise=RewardNormalise.ENVIRONMENT)


def totals(groups: list[list[Scored]]) -> list[list[float]]:
    return [[one.total for one in group] for group in groups]


def test_without_normalisation_nothing_changes_and_nothing_is_remembered() -> None:
    groups, scales = normalise_rewards([[earned(4.0), earned(0.0)]], Reward(), {})
    assert totals(groups) == [[4.0, 0.0]]
    assert scales == {}


def test_rewards_are_divided_by_the_spread_of_their_own_environment() -> None:
    groups = [[earned(4.0), earned(0.0)], [earned(300.0, "web"), earned(100.0, "web")]]
    found, scales = normalise_rewards(groups, BY_ENVIRONMENT, {})
    assert totals(found) == [
        [pytest.approx(4 / sqrt(8)), 0.0],
        [pytest.approx(300 / sqrt(20000)), pytest.approx(100 / sqrt(20000))],
    ]
    assert scales["maze"] == Moments(count=2, mean=2.0, squares=8.0)


def test_rewards_of_turns_are_divided_too() -> None:
    one = Scored(episode=played(1, 1), outcome=4.0, turn_rewards=(0.0, -1.0))
    (found, _), _ = normalise_rewards([[one], [earned(0.0)]], BY_ENVIRONMENT, {})
    by = sqrt(4.5)
    assert found[0].turn_rewards == (0.0, pytest.approx(-1 / by))
    assert found[0].outcome == pytest.approx(4 / by)


def test_the_scale_goes_on_from_step_to_step() -> None:
    _, scales = normalise_rewards([[earned(1.0), earned(2.0)]], BY_ENVIRONMENT, {})
    _, scales = normalise_rewards([[earned(6.0), earned(7.0), earned(9.0, "web")]], BY_ENVIRONMENT, scales)
    assert scales["maze"].divisor == pytest.approx(np.std([1, 2, 6, 7], ddof=1))
    assert scales["web"].count == 1


@pytest.mark.parametrize("rewards", [[5.0], [0.1, 0.1, 0.1], [0.1 + 0.2, 0.3]])
def test_rewards_without_a_spread_to_speak_of_stay_as_they_are(rewards: list[float]) -> None:
    groups, _ = normalise_rewards([[earned(reward) for reward in rewards]], BY_ENVIRONMENT, {})
    assert totals(groups) == [rewards]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=5), min_size=1, max_size=4), st.randoms())
def test_the_scale_is_that_of_all_rewards_at_once(steps: list[list[float]], mixed: random.Random) -> None:
    running = Moments()
    for step in steps:
        assert running.updated(mixed.sample(step, len(step))) == running.updated(step)
        running = running.updated(step)
    everything = [value for step in steps for value in step]
    assert running.count == len(everything)
    assert running.mean == pytest.approx(np.mean(everything), abs=1e-9)
    assert running.squares == pytest.approx(np.var(everything) * len(everything), rel=1e-9, abs=1e-6)


# --- towards advantages ---------------------------------------------------------------------------------------------


def test_the_outcome_sits_on_the_last_turn() -> None:
    found = assign_turn_rewards(Scored(episode=played(2, 3), outcome=1.0, turn_rewards=(0.25, 0.5)))
    assert (found.lengths, found.rewards, found.states) == ((2, 3), (0.25, 1.5), ("s0", "s1"))


def earned_by(episode: Episode) -> Scored:
    return Scored(episode=episode, outcome=1.0, turn_rewards=tuple(0.1 * 2**k for k in range(len(episode.turns))))


@pytest.mark.parametrize(
    ("lengths", "rewards"),
    [
        ((0, 2, 1), (0.1 + 0.2, 0.4 + 1)),
        ((2, 0, 1), (0.1 + 0.2, 0.4 + 1)),
        ((2, 1, 0), (0.1, 0.2 + 0.4 + 1)),
        ((0, 2, 0), (0.1 + 0.2 + 0.4 + 1,)),
    ],
)
def test_a_turn_without_tokens_gives_its_reward_to_a_neighbour(
    lengths: tuple[int, ...], rewards: tuple[float, ...]
) -> None:
    found = assign_turn_rewards(earned_by(played(*lengths)), loss_mask=[length > 0 for length in lengths])
    assert found.rewards == pytest.approx(rewards)
    assert found.lengths == tuple(length for length in lengths if length)
    assert found.loss_mask == (True,) * len(rewards)


def test_an_episode_in_which_nothing_was_sampled_earns_no_credit() -> None:
    with pytest.raises(TurnRewardsError, match="no token was sampled in this episode of task 't1'"):
        assign_turn_rewards(earned_by(played(0)))


def test_what_others_know_of_the_episode_is_handed_on() -> None:
    values, kl_penalty = np.array([0.5]), np.array([-0.25])
    found = assign_turn_rewards(replace(earned(1.0), kl_penalty=kl_penalty, values=values, greedy=earned(0.5)))
    assert found.values is values
    assert found.token_rewards is kl_penalty
    assert found.greedy is not None
    assert found.greedy.rewards == (0.5,)
