from __future__ import annotations

import pytest
from agym.envs.counter import Counter, create
from agym.envs.errors import BadOption, UnknownTask
from agym.envs.protocol import Status


def test_the_goal_ends_the_episode_with_a_score_of_1() -> None:
    env = Counter()
    env.reset("reach-8", 2)
    steps = [env.step(action) for action in env.expert("reach-8", 2)]
    assert steps[-1].terminated
    assert steps[-1].reward == 1.0
    assert not any(step.ended for step in steps[:-1])


def test_nearer_scores_more() -> None:
    env = Counter()
    env.reset("reach-29", 0)
    rewards = [env.step("add 1").reward for _ in range(2)]
    assert 0 < rewards[0] < rewards[1] < 1


def test_a_senseless_action_keeps_the_score() -> None:
    env = Counter()
    env.reset("reach-29", 0)
    before = env.step("add 1").reward
    after = env.step("fly")
    assert (after.reward, after.status) == (before, Status.INVALID)


def test_too_many_steps_truncate() -> None:
    env = Counter()
    env.reset("reach-29", 0)
    steps = [env.step("take 1") for _ in range(20)]
    assert [step.truncated for step in steps] == [False] * 19 + [True]
    assert not steps[-1].terminated


def test_every_task_can_be_done_within_its_hint() -> None:
    env = Counter()
    tasks = env.tasks("train") + env.tasks("test")
    assert max(len(env.expert(task, seed)) for task in tasks for seed in range(20)) <= (env.spec.max_turns or 0)


def test_what_is_unknown_is_refused() -> None:
    with pytest.raises(UnknownTask):
        Counter().reset("reach-31", 0)
    with pytest.raises(BadOption):
        create({"base": 2})
