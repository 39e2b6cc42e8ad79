"""A score that its environment cannot give is a fault of the environment: counted, retried, never trained on."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from random import Random
from typing import Any

import numpy as np
import pytest
from agym.envs.clients.client import InlineEnv
from agym.envs.protocol import LARGEST_REWARD, Observation, Score, Step
from agym.runtime.engine import OutcomeKind

from .conftest import echoing

TEXT = echoing("""
algorithm: {use: grpo, group_size: 4, groups_per_step: 4, kl: {coef: 0}}
schedule: [{stage: exploit, turns: 2, until: step >= 2}]
""")


def world(echo: Any, reward: Any, rate: float, **spec: Any) -> InlineEnv:
    """The usual world, which now and then earns the agent something else at the end."""

    class Odd(echo):  # type: ignore[misc]
        def reset(self, task: str, seed: int) -> Observation:
            self._odd = Random(f"odd {task} {seed}").random() < rate
            return super().reset(task, seed)

        def step(self, action: str) -> Step:
            step = super().step(action)
            return replace(step, reward=reward) if self._odd else step

    Odd.spec = replace(echo.spec, **spec)
    return InlineEnv(Odd)


@pytest.mark.parametrize(
    "reward", [nan, inf, -inf, 1e13, -1e13, 1e308, 10**400, "1", None, 1.5, -0.2, np.float32(3.0)], ids=repr
)
def test_it_is_counted_and_never_trained_on(new_run: Any, echo: Any, reward: Any) -> None:
    run = new_run("rollout={max_fault_share: 1.0, retries: 1}", text=TEXT, clients={"echo": world(echo, reward, 0.4)})
    assert run.go().kind is OutcomeKind.FINISHED
    steps = run.steps()
    assert sum(row["rollout/faults"] for row in steps) > 0
    assert sum(row.get("rollout/fault_garbage", 0) for row in steps) >= 2 * sum(row["rollout/faults"] for row in steps)
    assert all(0 <= row["rollout/score"] <= 1 for row in steps if "rollout/score" in row)
    assert all(abs(row["rollout/reward"]) < 100 for row in steps if "rollout/reward" in row)


@pytest.mark.parametrize(
    ("score", "reward", "range_", "is_fault"),
    [
        (Score.LAST, 1.0 + 1e-9, (0.0, 1.0), False),
        (Score.LAST, 1.01, (0.0, 1.0), True),
        (Score.MAX, -1.0, (-1.0, 1.0), False),
        (Score.MAX, -1.1, (-1.0, 1.0), True),
        (Score.SUM, 0.4, (0.0, 10.0), False),
        (Score.SUM, 6.0, (0.0, 10.0), True),
        (Score.SUM, LARGEST_REWARD, (-inf, inf), False),
        (Score.LAST, 400.0, (-500.0, 500.0), False),
    ],
)
def test_the_declared_range_holds_for_the_score_and_not_for_each_step(
    new_run: Any, echo: Any, score: Score, reward: float, range_: tuple[float, float], is_fault: bool
) -> None:
    run = new_run(
        "rollout={max_fault_share: 1.0, retries: 0}",
        text=TEXT,
        clients={"echo": world(echo, reward, 1.0, score=score, score_range=range_)},
    )
    run.go()
    # an episode without a single action earns nothing and is not the environment's doing
    assert any(row["rollout/faults"] for row in run.steps()) == is_fault


def test_the_fault_names_the_score_and_the_range(new_run: Any, echo: Any) -> None:
    run = new_run(text=TEXT, clients={"echo": world(echo, 7.0, 1.0)})
    with pytest.raises(Exception, match=r"echo gave a score of \d+, outside its 'score_range' of 0 to 1"):
        run.go()
