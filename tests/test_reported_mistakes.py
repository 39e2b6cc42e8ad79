"""Mistakes that users of five other trainers reported: one error each, at the word, with advice that fits."""

from __future__ import annotations

from collections import Counter

import pytest
import reported_mistakes
from reported_mistakes import Verdict

SETS = reported_mistakes.find_sets()


@pytest.fixture(scope="module", params=SETS, ids=lambda number: f"set-{number}")
def verdicts(request: pytest.FixtureRequest) -> list[Verdict]:
    return reported_mistakes.judge(reported_mistakes.read_mistakes(SETS[request.param]))


def test_the_sets_are_numbered_without_a_gap() -> None:
    assert list(SETS) == list(range(1, len(SETS) + 1))


def test_no_mistake_is_in_two_sets() -> None:
    ids = Counter(mistake.id for path in SETS.values() for mistake in reported_mistakes.read_mistakes(path))
    assert [name for name, count in ids.items() if count > 1] == []


def test_mistakes_come_from_five_trainers(verdicts: list[Verdict]) -> None:
    counts = Counter(verdict.mistake.trainer for verdict in verdicts)
    assert len(counts) >= 5
    assert sorted(counts.values())[-5] >= 20


@pytest.mark.parametrize(("part", "limit"), reported_mistakes.LIMITS.items())
def test_the_shares_are_above_their_limits(verdicts: list[Verdict], part: str, limit: float) -> None:
    failed = [verdict.mistake.id for verdict in verdicts if not getattr(verdict, part)]
    assert len(failed) <= (1 - limit) * len(verdicts), failed


def test_none_is_an_internal_error(verdicts: list[Verdict]) -> None:
    assert reported_mistakes.INTERNAL_ERROR not in {verdict.exit_code for verdict in verdicts}
