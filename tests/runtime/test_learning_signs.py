"""Training that learns nothing is reported while it happens, and in the summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agym.runtime.storage.learning_signs import LearningSigns
from agym.runtime.storage.summary import summary_lines

HEALTHY: dict[str, Any] = {
    "stage": "explore",
    "train/updates": 1,
    "train/entropy": 1.0,
    "train/kl": 0.01,
    "group/zero_std_frac": 0.5,
    "rollout/success": 0.25,
}
NOTHING = {"train/updates": 0, "group/zero_std_frac": 1.0, "rollout/success": 0.0}


def rows(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**HEALTHY, "total_step": step, **change} for step, change in enumerate(changes, 1)]


def notes(*changes: dict[str, Any]) -> list[str]:
    signs = LearningSigns()
    return [text for row in rows(*changes) for text in signs.add(row)]


def test_a_healthy_run_has_nothing_to_note() -> None:
    falling = [{"train/entropy": 1.0 / step, "train/kl": 0.05 * step} for step in range(1, 40)]
    assert notes(*falling) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (NOTHING, "for 5 steps the weights were not updated, and no episode succeeded: the episodes of each"),
        (
            NOTHING | {"rollout/success": 1.0},
            "for 5 steps the weights were not updated: the episodes of each",
        ),
        ({"train/updates": 0}, "for 5 steps the weights were not updated: look at 'filter', 'guards'"),
        ({"train/entropy": 1e-5}, "the entropy fell to 1.0e-05 nats per token"),
        ({"train/kl": 7.0}, "the KL divergence from the reference grew to 7 nats per token"),
        (
            {"train/entropy": 3.5},
            "the entropy rose to 3.5 nats per token, over 3 times its value in the stage's first",
        ),
    ],
)
def test_each_sign_is_noted_once_when_it_has_lasted(change: dict[str, Any], words: str) -> None:
    first = [{}] * 5
    assert notes(*first, *[change] * 4) == []
    (text,) = notes(*first, *[change] * 4, {}, *[change] * 9, {}, *[change] * 5)
    assert text.startswith(f"stage 'explore': {words}")


def test_a_small_entropy_may_double() -> None:
    assert notes(*[{"train/entropy": 0.02}] * 5, *[{"train/entropy": 0.4}] * 9) == []


def test_each_stage_is_judged_by_its_own_steps() -> None:
    two = [*[{}] * 5, *[NOTHING] * 3, *[NOTHING | {"stage": "refine"}] * 4]
    assert notes(*two) == []


def test_the_summary_of_a_run_that_learned_nothing_does_not_end_green(tmp_path: Path) -> None:
    ended = [*rows(NOTHING, NOTHING), *rows({"stage": "refine"})]
    lines = list(summary_lines(ended, "finished", None, tmp_path))
    assert lines[0].startswith("finished with 1 warning: ")
    (warning,) = (line for line in lines if line.startswith("  warning  "))
    assert "stage 'explore': for 2 steps the weights were not updated, and no episode succeeded" in warning


def test_what_recovered_is_not_in_the_summary(tmp_path: Path) -> None:
    lines = list(summary_lines(rows(*[NOTHING] * 8, {}), "finished", None, tmp_path))
    assert lines[0].startswith("finished: ")
