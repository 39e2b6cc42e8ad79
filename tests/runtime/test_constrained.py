"""Replies restricted to some: nothing else is said, and log-probs are those of what was left to choose from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log

import numpy as np
import pytest
from agym.runtime.protocols import FinishReason, Sampled, SampleRequest, SamplingSettings
from agym.runtime.rollout.constrained import sample_valid_action

END = 0
REPLIES = [(1, 2, END), (1, 3, END), (1, 3, 4, END), (5, END)]


@dataclass
class Loaded:
    """Draws a token in proportion to its number plus one, among those that are allowed."""

    requests: list[SampleRequest] = field(default_factory=list)

    async def sample(self, request: SampleRequest) -> Sampled:
        self.requests.append(request)
        allowed = request.sampling.allowed
        weights = np.asarray([token + 1 for token in allowed]) / sum(token + 1 for token in allowed)
        at = int(np.random.Generator(np.random.PCG64(request.seed)).choice(len(allowed), p=weights))
        return Sampled(ids=(allowed[at],), logprobs=(log(weights[at]),), versions=(7,), finish=FinishReason.LENGTH)


def choose(replies: Sequence[tuple[int, ...]], seed: int = 0, most: int = 9) -> tuple[Sampled, Loaded]:
    sampler = Loaded()
    request = SampleRequest(prompt=(8, 9), sampling=SamplingSettings(temperature=0.5), max_tokens=most, seed=seed)
    return asyncio.run(sample_valid_action(sampler, request, replies)), sampler  # type: ignore[arg-type]


def test_each_reply_comes_as_often_as_its_log_probs_say() -> None:
    found = [choose(REPLIES, seed)[0] for seed in range(600)]
    assert {each.ids for each in found} == set(REPLIES)
    for reply in REPLIES:
        mine = [each for each in found if each.ids == reply]
        (told,) = {round(exp(sum(each.logprobs)), 9) for each in mine}
        assert len(mine) / len(found) == pytest.approx(told, abs=0.08)


def test_nothing_is_asked_where_there_is_no_choice() -> None:
    found, sampler = choose([(1, 2, 3, END)])
    assert (found.ids, found.logprobs, found.versions) == ((1, 2, 3, END), (0.0,) * 4, (-1,) * 4)
    assert (sampler.requests, found.finish) == ([], FinishReason.STOP)


def test_the_engine_is_asked_with_what_was_said_so_far() -> None:
    found, sampler = choose(REPLIES, seed=next(at for at in range(99) if choose(REPLIES, at)[0].ids == REPLIES[2]))
    assert [request.prompt for request in sampler.requests] == [(8, 9), (8, 9, 1), (8, 9, 1, 3)]
    assert [request.sampling.allowed for request in sampler.requests] == [(1, 5), (2, 3), (0, 4)]
    assert all(request.sampling.temperature == 0.5 and request.max_tokens == 1 for request in sampler.requests)
    assert len({request.seed for request in sampler.requests}) == 3
    assert (found.logprobs[-1], found.versions[-1]) == (0.0, -1)


def test_a_reply_that_has_no_room_is_cut() -> None:
    found, _ = choose([(1, 2, 3, END)], most=2)
    assert (found.ids, found.finish) == ((1, 2), FinishReason.LENGTH)
