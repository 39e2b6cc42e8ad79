"""The recipe reference: every key, fresh, and one key at a time."""

from __future__ import annotations

from dataclasses import fields

import pytest
from agym.dsl.model.algorithm import Preset
from agym.dsl.model.recipe import Recipe
from agym.dsl.model.reflect import record, records
from agym.dsl.publish.reference_docs import UnknownKey, describe_key, write_reference

PAGE = write_reference()


def test_every_class_has_one_section_with_all_its_keys() -> None:
    sections = PAGE.split("\n## ")[1:]
    for each in records(record(Recipe)):
        rows = [f"| `{key.name}` |" for key in fields(each.cls)]
        assert len([section for section in sections if all(row in section for row in rows)]) >= 1, each.cls
    headings = [section.split("\n", 1)[0] for section in sections]
    assert len(headings) == len(set(headings))


def test_every_algorithm_is_listed_with_its_source() -> None:
    for name in Preset:
        assert f"| `{name}` |" in PAGE
    assert "arXiv 2402.03300" in PAGE


def test_tables_are_whole() -> None:
    for table in PAGE.split("\n\n"):
        rows = [line for line in table.splitlines() if line.startswith("|")]
        counts = {row.replace("\\|", "").count("|") for row in rows}
        assert len(counts) <= 1, table


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        ("algorithm.kl", ["KL penalty towards a reference policy.", "type     a map", "coef", "previous_coef"]),
        ("algorithm.kl.coef", ["Weight of the KL", "a number from 0, *may change*", "default  0.0"]),
        ("schedule[0].turns", ["schedule.turns", "Interaction horizon", "example  10"]),
        ("schedule.turns", ["Interaction horizon"]),
        ("environments.craft.weight", ["environments.NAME.weight"]),
        ("environments.NAME.token", ["${env:NAME}"]),
        ("hardware.layout", ["colocated, split"]),
        ("algorithm", ["a map or its use alone"]),
        ("agym", ["type     1"]),
        ("reward.episode", ["an expression of the episode", "default  score"]),
        ("logging", ["a list, each a map or its use alone; or one alone"]),
        ("extends", ["Recipes that this one extends"]),
    ],
)
def test_a_key_is_described(key: str, lines: list[str]) -> None:
    described = describe_key(key)
    for line in lines:
        assert line in described


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("algorithm.lrr", "'algorithm' has no key 'lrr': did you mean 'lr'?"),
        ("algoritm", "there is no key 'algoritm': did you mean 'algorithm'?"),
        ("kl_coef", "there is no key 'kl_coef': did you mean 'algorithm.kl.coef'? write algorithm: {kl: {coef: ...}}"),
        ("", "expected a key such as algorithm.kl"),
        ("name.x", "'name' has no key 'x'"),
    ],
)
def test_an_unknown_key_is_told_what_was_meant(key: str, message: str) -> None:
    with pytest.raises(UnknownKey) as caught:
        describe_key(key)
    assert str(caught.value).startswith(message)
