from __future__ import annotations

import json
from pathlib import Path

import pytest
from agym.envs import releases
from agym.envs.registry import factory, list_names
from agym.envs.releases import Ids, main, released_ids

KNOWN = json.loads((Path(releases.__file__).parent / "ids.json").read_text("utf-8"))


@pytest.mark.parametrize("env", KNOWN)
def test_every_split_begins_with_the_ids_it_was_released_with(env: str) -> None:
    released = released_ids(env, KNOWN[env]["options"])
    instance = factory(env, KNOWN[env]["options"])()
    assert set(released) == set(instance.spec.splits)
    assert [split for split in released if not released[split].begin(instance.tasks(split))] == []
    assert all(ids.count for ids in released.values())
    instance.close()


def test_each_environment_is_written_down_but_those_whose_tasks_are_others() -> None:
    assert set(list_names()) - set(KNOWN) == {"verifiers", "webarena"}


def test_with_other_options_nothing_is_known() -> None:
    assert released_ids("counter", {})
    assert released_ids("counter", {"largest": 3}) == {}
    assert released_ids("no-such-environment", {}) == {}


@pytest.mark.parametrize(
    ("ids", "begins"),
    [
        (["a", "b"], True),
        (["a", "b", "c"], True),
        (["a"], False),
        ([], False),
        (["b", "a"], False),
        (["a", "c", "b"], False),
        (["a\nb"], False),
    ],
)
def test_a_split_may_grow_at_its_end_alone(ids: list[str], begins: bool) -> None:
    assert Ids.of(["a", "b"]).begin(ids) is begins


def counters(folder: Path, **splits: object) -> Path:
    file = folder / "ids.json"
    file.write_text(json.dumps({"counter": {"options": {}, "splits": {**KNOWN["counter"]["splits"], **splits}}}))
    return file


def test_what_was_added_is_written_down(tmp_path: Path) -> None:
    fewer = Ids.of(factory("counter")().tasks("train")[:3])
    file = counters(tmp_path, train=[fewer.count, fewer.digest])
    assert main(file) == 0
    assert json.loads(file.read_text("utf-8")) == {"counter": KNOWN["counter"]}


@pytest.mark.parametrize(
    ("splits", "named"),
    [({"test": [2, "0" * 64]}, "counter: test"), ({"gone": [1, "0" * 64]}, "counter: gone")],
)
def test_what_changed_is_told_and_not_written_over(
    splits: dict[str, object], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = counters(tmp_path, **splits)
    before = file.read_bytes()
    assert main(file) == 1
    assert capsys.readouterr().err == f"no longer begins with the ids it had: {named}\n"
    assert file.read_bytes() == before
