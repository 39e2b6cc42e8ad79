"""What an environment measures by itself, such as the parts of a rubric, is a metric of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from agym.envs.clients.client import InlineEnv
from agym.envs.protocol import Observation, Step
from agym.runtime.learning.metrics import mean_measures, rollout_metrics
from agym.runtime.rollout.env_calls import measures_of

from .conftest import echoing
from .factories import make_episode

TEXT = echoing("""
algorithm: {use: grpo, group_size: 4, groups_per_step: 4, kl: {coef: 0}}
schedule: [{stage: exploit, turns: 2, until: step >= 2}]
eval: {every: 2, samples: 1, greedy: true}
""")


def step_with(**info: Any) -> Step:
    return Step(observation=Observation(text=""), info=info)


@pytest.mark.parametrize(
    ("metrics", "known"),
    [
        ({"right": 1, "share of rhymes": 0.25}, {"right": 1.0, "share_of_rhymes": 0.25}),
        ({"a": nan, "b": inf, "c": "1", "d": None, "e": [1], "f": 10**400, "g": True}, {"g": 1.0}),
        ([1.0], {}),
        (None, {}),
        ({f"m{number:03d}": number for number in range(99)}, {f"m{number:03d}": number for number in range(40)}),
    ],
)
def test_numbers_with_names_are_kept_and_nothing_else(metrics: Any, known: Mapping[str, float]) -> None:
    assert measures_of(step_with(metrics=metrics)) == known


def test_means_are_over_the_episodes_that_have_it() -> None:
    episodes = [make_episode((), (), measures=each) for each in ({"a": 1.0}, {"a": 0.0, "b": 3.0}, {})]
    assert mean_measures(episodes) == {"a": 0.5, "b": 3.0}
    assert rollout_metrics(episodes)[f"rollout/env/{episodes[0].task.environment}/b"] == 3.0


def test_the_last_step_of_each_episode_counts(new_run: Any, echo: Any) -> None:
    class Measuring(echo):  # type: ignore[misc]
        def reset(self, task: str, seed: int) -> Observation:
            self._steps = 0
            return super().reset(task, seed)

        def step(self, action: str) -> Step:
            self._steps += 1
            return replace(super().step(action), info={"metrics": {"steps": self._steps}})

    run = new_run(text=TEXT, clients={"echo": InlineEnv(Measuring)})
    run.go()
    for row in run.steps():
        # a reply without an action is a turn, and no step
        assert 1 <= row["rollout/env/echo/steps"] <= row["rollout/turns"]
    evaluated = [row for row in run.rows() if "eval/success" in row]
    assert evaluated
    for row in evaluated:
        assert row["eval/echo/env/steps"] >= 1
        assert row["eval/echo/greedy_env/steps"] >= 1
