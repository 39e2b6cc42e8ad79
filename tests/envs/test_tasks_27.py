"""The table of AgentGym-RL's tasks is true: its splits exist, with that many tasks, and tests show the loaders."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from agym.envs.registry import factory

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tasks-27.md").read_text(encoding="utf-8")


def tables() -> list[list[list[str]]]:
    """The cells of each table of the page, without their heads."""
    blocks = [block.splitlines()[2:] for block in PAGE.split("\n\n") if block.startswith("|")]
    return [[[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows] for rows in blocks]


TASKS, LOADERS, ALONGSIDE = tables()


def test_there_are_27_in_five_families_each_a_split_of_its_own() -> None:
    families = Counter(task.partition(":")[0] for task, *_ in TASKS)
    assert families == {"WebArena": 5, "Deep Search": 7, "TextCraft": 4, "BabyAI": 6, "SciWorld": 5}
    assert len({(environment, split) for _, environment, split, *_ in TASKS}) == 27
    assert {here for *_, here, _ in TASKS} == {"runs", "loads"}


@pytest.mark.parametrize(("environment", "split"), [tuple(row[1:3]) for row in (*TASKS, *ALONGSIDE)])
def test_each_is_a_split_that_recipes_know(environment: str, split: str) -> None:
    known = json.loads((ROOT / "envs" / environment / "env.json").read_text(encoding="utf-8"))
    assert split in known["splits"]


@pytest.mark.parametrize(("environment", "split", "number"), [(*row[1:3], row[4]) for row in TASKS if row[3] == "runs"])
def test_each_that_runs_has_as_many_tasks_as_it_says_all_held_out(environment: str, split: str, number: str) -> None:
    env = factory(environment)()
    tasks = set(env.tasks(split))
    assert len(tasks) == int(number)
    assert tasks <= set(env.tasks("test"))
    env.close()


@pytest.mark.parametrize(("environment", "split"), [tuple(row[1:]) for row in ALONGSIDE])
def test_what_runs_alongside_the_loaders_has_tasks_all_held_out(environment: str, split: str) -> None:
    env = factory(environment)()
    assert env.tasks(split)
    assert set(env.tasks(split)) <= set(env.tasks("test"))
    env.close()


@pytest.mark.parametrize(("environment", "split"), [tuple(row[1:3]) for row in TASKS if row[3] == "loads"])
def test_each_that_is_loaded_has_a_test_of_its_loader(environment: str, split: str) -> None:
    ((options, test),) = [(row[1], row[3]) for row in LOADERS if row[0] == environment]
    known = json.loads((ROOT / "envs" / environment / "env.json").read_text(encoding="utf-8"))["options"]
    assert {option.strip(" `") for option in options.split(",")} <= set(known)
    file, _, name = test.partition("::")
    found = spec_from_file_location("shown", ROOT / file)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    (each,) = [mark for mark in getattr(module, name).pytestmark if mark.name == "parametrize"]
    assert split in each.args[1]
