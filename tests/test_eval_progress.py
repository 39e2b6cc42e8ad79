"""What `agym eval` shows while it plays, and what it has to show when it is interrupted."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from agym.commands.invocation.eval_progress import EvalProgress
from agym.reporters.diagnostics.text import Style
from agym.reporters.evaluation import outcomes_table
from agym.runtime.learning.metrics import eval_outcomes
from agym.runtime.rollout.episode import Ending, Episode, Task, Turn
from agym.runtime.storage.episode_log import Mode


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def episode(
    task: int, index: int = 0, *, actions: tuple[str | None, ...] = ("go",), ending: Ending = Ending.DONE
) -> Episode:
    turns = tuple(
        Turn(segment=0, start=0, end=0, reply="", action=each, observation="", reward=0.0) for each in actions
    )
    return Episode(
        task=Task(environment="house", id=f"task-{task}", seed=task),
        index=index,
        segments=(),
        turns=turns,
        ending=ending,
        horizon=4,
        score=float(ending is Ending.DONE),
        success=ending is Ending.DONE,
    )


@pytest.fixture
def seconds() -> Iterator[float]:
    return iter(count(0.0, 4.0))


def test_lines_tell_every_ten_seconds_and_at_the_end_of_a_play(seconds: Iterator[float]) -> None:
    err = io.StringIO()
    progress = EvalProgress(err, seconds.__next__)
    progress.begin("house", 4, Mode.SAMPLED, 8)
    for task in range(8):
        progress.episode(episode(task, ending=Ending.DONE if task % 2 else Ending.HORIZON))
    progress.begin("house", 4, Mode.GREEDY, 3)
    progress.episode(episode(0, ending=Ending.ENV_FAULT))
    progress.close()
    lines = err.getvalue().splitlines()
    assert lines[0] == "agym eval: house, 4 turns, sampled: 3 of 8 episodes, 1 succeeded"
    assert "agym eval: house, 4 turns, sampled: 8 of 8 episodes, 4 succeeded" in lines
    assert len(lines) <= 4


def test_on_a_terminal_one_line_is_redrawn_and_a_note_begins_another(seconds: Iterator[float]) -> None:
    err = Screen()
    progress = EvalProgress(err, seconds.__next__)
    progress.begin("house", 4, Mode.SAMPLED, 3)
    progress.episode(episode(1))
    progress.note("a server was restarted")
    progress.episode(episode(2))
    progress.episode(episode(3))
    progress.close()
    assert err.getvalue().split("\n")[1] == "agym eval: a server was restarted"
    assert err.getvalue().endswith("3 of 3 episodes, 3 succeeded\n")


def test_what_was_played_before_an_interrupt_is_kept_task_by_task(seconds: Iterator[float]) -> None:
    progress = EvalProgress(io.StringIO(), seconds.__next__)
    progress.begin("house", 4, Mode.SAMPLED, 6)
    for task, index in ((2, 1), (1, 0), (2, 0)):
        progress.episode(episode(task, index))
    progress.begin("house", 8, Mode.GREEDY, 2)
    (play,) = progress.plays
    assert [(group.task.id, [each.index for each in group.episodes]) for group in play.groups] == [
        ("task-1", [0]),
        ("task-2", [0, 1]),
    ]
    assert progress.missing == 5


def test_outcomes_count_each_task_once_and_name_every_ending() -> None:
    lost = replace(episode(9), ending=Ending.ENV_FAULT)
    groups = [
        [episode(1), episode(1, 1, actions=("go", None, None), ending=Ending.INVALID)],
        [episode(2, ending=Ending.HORIZON, actions=("go",) * 4)],
        [lost],
    ]
    found = eval_outcomes(groups, 0.95, 7)
    assert (found.episodes, found.tasks, found.faults) == (3, 2, 1)
    assert found.success.value == 0.25
    assert found.invalid_replies.value == 0.25
    assert found.truncated.value == 0.5
    assert found.truncated.low <= 0.5 <= found.truncated.high
    assert found.endings == {"done": 1, "env_fault": 1, "horizon": 1, "invalid": 1}
    table = outcomes_table([("house", 4, "greedy", found)], Style(width=160, colour=False)).splitlines()
    assert table[0].split()[:4] == ["environment", "turns", "episodes", "success"]
    assert table[1].startswith("house greedy")
    assert table[1].rstrip().endswith("done 1, env_fault 1, horizon 1, invalid 1")
