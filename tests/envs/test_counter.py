from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

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
    for env in (Counter(), Counter(7), Counter(99)):
        tasks = env.tasks("train") + env.tasks("test")
        assert max(len(env.expert(task, seed)) for task in tasks for seed in range(20)) <= (env.spec.max_turns or 0)


def test_goals_go_up_to_the_largest_and_the_step_limit_with_them() -> None:
    env = create({"largest": 60})
    assert len(env.tasks("train") + env.tasks("test")) == 60
    env.reset("reach-59", 0)
    steps = [env.step("take 1") for _ in range(32)]
    assert [step.truncated for step in steps] == [False] * 31 + [True]


def test_a_state_is_named_by_number_and_goal_however_it_came_about() -> None:
    env, names = Counter(), list[object]()
    for actions in (["add 5"], ["add 1"] * 5, ["add 5", "fly"], ["add 5", "add 1"]):
        env.reset("reach-29", 0)
        names.append([env.step(action) for action in actions][-1].info["state"])
    assert names[0] == names[1] == names[2] != names[3]
    start = int(env.reset("reach-28", 0).text.split()[3].rstrip(";"))
    assert env.step("fly").info["state"] == f"{start} to 28"


def test_what_is_unknown_is_refused() -> None:
    with pytest.raises(UnknownTask):
        Counter().reset("reach-31", 0)
    with pytest.raises(BadOption):
        create({"base": 2})
    for wrong in (2, 100, 30.0, True, "30"):
        with pytest.raises(BadOption, match="from 3 to 99"):
            create({"largest": wrong})


def test_hindsight_tells_of_every_number_of_training_on_the_way_once() -> None:
    env = Counter()
    first = env.reset("reach-29", 0).text
    start = int(first.split()[3].rstrip(";"))
    actions = ["add 1", "fly", "add 5", "take 1", "add 1", "add 5"]
    numbers = [start + moved for moved in (1, 1, 6, 5, 6, 11)]
    found = env.hindsight("reach-29", 0, actions)
    expected = {number: at for at, number in reversed([*enumerate(numbers, start=1)]) if number % 3}
    assert {each.task: each.actions for each in found} == {f"reach-{n}": at for n, at in expected.items()}
    posed = [f"The number is {start}; the goal is {n}." for n in dict.fromkeys(numbers) if n % 3]
    assert [each.first.text for each in found] == posed


def test_what_is_reached_on_the_way_is_what_a_task_of_its_own_would_end_with() -> None:
    env = Counter()
    actions = ["take 1", "take 1", "add 1", "take 1"]
    for seed in range(20):
        for each in env.hindsight("reach-28", seed, actions):
            env.reset("reach-28", seed)
            steps = [env.step(action) for action in actions[: each.actions]]
            assert steps[-1].observation.text == f"The number is {each.task.removeprefix('reach-')}."


def test_a_held_out_number_is_never_told_and_its_episode_tells_nothing() -> None:
    env = Counter()
    actions = ["add 1"] * 15
    told = {each.task for task in env.tasks("train") for each in env.hindsight(task, 1, actions)}
    assert told
    assert told <= set(env.tasks("train"))
    assert [env.hindsight(task, 1, actions) for task in env.tasks("test")] == [()] * 10


COPY = """\
import asyncio
from agym.envs.clients.client import InlineEnv
from agym.envs.conformance import Subject, run_checks
from my_counter import create

async def go():
    client = InlineEnv(lambda: create({"largest": 9}))
    results = await run_checks(Subject(client=client, num_tasks=2))
    await client.close()
    return [f"{each.check}: {each.detail}" for each in results if not each.passed]

print(create.__module__, asyncio.run(go()))
"""


@pytest.mark.slow
def test_a_copy_outside_the_package_passes_every_check(tmp_path: Path, root: Path) -> None:
    shutil.copytree(root / "envs/counter", tmp_path / "my_counter", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run([sys.executable, "-c", COPY], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "my_counter.env []\n"), done.stderr
