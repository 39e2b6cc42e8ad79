"""Mistakes that users of five other trainers reported: one error each, at the word, with advice that fits."""

from __future__ import annotations

from collections import Counter

import pytest
import reported_mistakes
from reported_mistakes import Verdict


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    return reported_mistakes.judge(reported_mistakes.read_mistakes())


def test_mistakes_come_evenly_from_five_trainers(verdicts: list[Verdict]) -> None:
    counts = Counter(verdict.mistake.trainer for verdict in verdicts)
    assert len(counts) == 5
    assert min(counts.values()) >= 30


@pytest.mark.parametrize("part", reported_mistakes.LIMITS)
def test_none_fails(verdicts: list[Verdict], part: str) -> None:
    assert [verdict.mistake.id for verdict in verdicts if not getattr(verdict, part)] == []


@pytest.mark.parametrize(("part", "limit"), reported_mistakes.LIMITS.items())
def test_the_shares_are_above_their_limits(verdicts: list[Verdict], part: str, limit: float) -> None:
    assert sum(getattr(verdict, part) for verdict in verdicts) >= limit * len(verdicts)


def test_none_is_an_internal_error(verdicts: list[Verdict]) -> None:
    assert reported_mistakes.INTERNAL_ERROR not in {verdict.exit_code for verdict in verdicts}
