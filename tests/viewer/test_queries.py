"""Filters, expressions, pages, groups: the answers are those that a person finds by reading all lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.expression.evaluate import MappingFacts
from agym.dsl.expression.expr import Expr
from agym.dsl.expression.scopes import SCOPES
from agym.viewer.index import EpisodeIndex
from agym.viewer.queries import EpisodeFilter, Queries
from agym.viewer.where import WhereError, where_to_sql

from .conftest import lines_of

RECORDS = [json.loads(line) for step in (1, 2) for line in lines_of(step).splitlines()]
Record = dict[str, Any]


@pytest.fixture
def queries(run: Path, cache: Path) -> Iterator[Queries]:
    with EpisodeIndex(run, cache) as index:
        index.update()
        yield Queries(index)


def facts(record: Record) -> MappingFacts:
    """The names of an expression, from the line itself."""
    turns = record["turns"]
    return MappingFacts(
        "recorded",
        {
            **{name: record[name] for name in ("score", "success", "sampled_tokens", "total_tokens", "horizon")},
            **{name: record[name] for name in ("ending", "total_step", "stage", "purpose", "mode", "index", "seconds")},
            "step": record["total_step"],
            "turns": len(turns),
            "invalid_turns": sum(turn["action"] is None for turn in turns),
            "done": record["ending"] == "done",
            "truncated": record["ending"] in ("horizon", "budget"),
            "environment": record["task"]["environment"],
            "task": record["task"]["id"],
            "difficulty": float(record["task"]["difficulty"]),
            "reward": record["training"]["reward"],
            "kept": record["training"]["kept"],
            "advantage": 0.5 if record["success"] else -0.25,
        },
    )


def test_every_name_of_the_scope_can_be_asked_for(queries: Queries) -> None:
    assert facts(RECORDS[0]).values.keys() == SCOPES["recorded"].facts.keys()
    for name in SCOPES["recorded"].facts:
        queries.find(EpisodeFilter(where=f"{name} == {name}"))


WHERE = [
    "success",
    "not success",
    "success == false and turns > 5",
    "success or invalid_turns >= 1",
    "done != success",
    "truncated",
    "ending in ('done', 'budget')",
    "ending not in ('done', 'budget')",
    "environment == 'world-2' and stage != 'stage-1'",
    "environment == 'nowhere'",
    "environment != 'nowhere'",
    "task == 'task-33'",
    "2 < turns <= 4 < horizon",
    "sampled_tokens / turns == 12",
    "total_tokens // 100 % 2 == 1",
    "turns ** 2 - 3 * turns > 10",
    "-score + 1 > 0.5",
    "min(turns, invalid_turns + 3, 4) == 4",
    "abs(advantage) < 0.3",
    "sqrt(turns) > 2",
    "(1 if success else turns) == 3",
    "default(reward, 5) == 0",
    "turns / (index - 3) == 1",
    "1 / (turns - 3) > 0 or success",
    "not (turns / (index - 3) > 1)",
    "difficulty > 0 and difficulty / difficulty == 1",
    "step == 2 and index > 5 and mode == 'sampled' and purpose == 'train' and kept",
]


@pytest.mark.parametrize("where", WHERE)
def test_an_expression_means_to_the_index_what_it_means_to_the_language(queries: Queries, where: str) -> None:
    expected = [each["id"] for each in RECORDS if Expr(where).holds(facts(each))]
    page = queries.find(EpisodeFilter(where=where), limit=1000, order="oldest")
    assert [each.id for each in page.episodes] == expected
    assert page.total == len(expected)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("succes", "character 1: unknown name 'succes'; did you mean 'success'?"),
        ("turns >", "character"),
        ("turns", "character 1: expected true or false"),
        ("ending == 3", "character"),
        ("cosine(1, 0, 10) > 0.5", "'cosine' is a function of the schedule"),
        ("1; DROP TABLE episodes", "character"),
    ],
)
def test_an_expression_that_is_wrong_is_explained_with_its_place(where: str, said: str) -> None:
    with pytest.raises(WhereError, match="--where, character") as error:
        where_to_sql(where)
    assert said in str(error.value)


FILTERS: list[tuple[EpisodeFilter, Callable[[Record], bool]]] = [
    (EpisodeFilter(), lambda each: True),
    (EpisodeFilter(environments=("world-1", "world-2")), lambda each: each["task"]["environment"][-1] in "12"),
    (EpisodeFilter(tasks=("task-40",), success=True), lambda each: each["task"]["id"] == "task-40" and each["success"]),
    (EpisodeFilter(first_step=2), lambda each: each["total_step"] >= 2),
    (EpisodeFilter(last_step=1, endings=("horizon",)), lambda each: each["total_step"] < 2 and not each["success"]),
    (EpisodeFilter(purposes=("eval",)), lambda each: False),
    (EpisodeFilter(modes=("sampled",), stages=("stage-2",)), lambda each: each["stage"] == "stage-2"),
    (EpisodeFilter(words="PERPETUAL"), lambda each: "perpetual" in said(each)),
    (EpisodeFilter(words="perpet", success=False), lambda each: "perpet" in said(each) and not each["success"]),
    (EpisodeFilter(words="or license"), lambda each: "or" in said(each).split() and " license" in f" {said(each)}"),
    (EpisodeFilter(words="'; DROP"), lambda each: False),
]


def said(record: Record) -> str:
    """Words as they are found: without what is between them."""
    texts = [record["opening"][-1]["content"]]
    texts += [text for turn in record["turns"] for text in (turn["reply"], turn["observation"])]
    return " ".join("".join(c if c.isalnum() else " " for c in " ".join(texts).lower()).split())


@pytest.mark.parametrize("at", range(len(FILTERS)))
def test_a_filter_finds_what_a_reader_of_all_lines_finds(queries: Queries, at: int) -> None:
    wanted, holds = FILTERS[at]
    page = queries.find(wanted, limit=1000, order="oldest")
    assert [each.id for each in page.episodes] == [each["id"] for each in RECORDS if holds(each)]


def test_pages_follow_each_other_and_know_how_many_there_are(queries: Queries) -> None:
    wanted = EpisodeFilter(success=False)
    whole = queries.find(wanted, limit=1000)
    pages = [queries.find(wanted, offset=offset, limit=50) for offset in range(0, 600, 50)]
    assert [each.id for page in pages for each in page.episodes] == [each.id for each in whole.episodes]
    assert {page.total for page in pages} == {len(whole.episodes)}
    assert [each.number for each in whole.episodes] == sorted((each.number for each in whole.episodes), reverse=True)


def test_a_group_a_history_and_the_record_of_an_episode(queries: Queries) -> None:
    one = queries.summary("train-2-7-3")
    assert one is not None
    assert queries.summary("train-2-7-99") is None
    group = queries.group(one.group)
    assert [each.id for each in group] == [f"train-2-7-{index}" for index in range(8)]
    assert {each.task for each in group} == {one.task}
    history = queries.history(one.environment, one.task)
    assert {each.id for each in group} <= {each.id for each in history}
    record = next(each for each in RECORDS if each["id"] == one.id)
    assert queries.record(one) == record
    assert queries.names("environment") == tuple(f"world-{at}" for at in range(5))
    with pytest.raises(KeyError):
        queries.names("number")
