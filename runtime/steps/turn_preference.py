"""Ops of turn-level preference: pairs of candidate turns, ranked by a critic that reads the solution (SWEET-RL).

The critic ("ranker") is a second policy, which reads the same episodes with a solution in their opening. Its advantage
of a turn is the mean over the turn's tokens of its log-ratio to the reference, both given the solution; it is trained
on pairs of whole episodes, of which the better should have the larger mean:

    A    = 1/L * (sum over the L tokens of  log critic - log reference)        of a turn, and of an episode
    loss = mean over pairs of  -log s(beta * (A of the better - A of the worse))

If the turns of an episode were summed, a critic that finds every turn a little unlikely would recognise the longer
episode by its length, and where failing takes longer it would learn nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from ...dsl.model.algorithm import Level, Preference
from ...dsl.model.plan import Op
from ..learning.metrics import mean
from ..learning.preference_pairs import (
    Pair,
    PreferenceObjective,
    Response,
    apply_masks,
    build_pairs,
    choose_pairs,
    preference_objective,
    responses_of,
    to_sequences,
)
from ..learning.reward import Scored
from ..protocols import SampleRequest, TrainSequence, UpdateMetrics
from ..rollout.episode import Episode, Turn
from ..workers.learner_worker import LearnerWorker
from ..workers.rollout_worker import RolloutWorker
from .stage_context import (
    StageContext,
    pair_settings,
    play_settings,
    response_logprobs,
    sampling_settings,
    shuffled_parts,
)
from .step_data import StepData

__all__ = ["Candidates", "propose_candidates", "rank_candidates", "update_ranker", "with_opening"]

_ROUNDING = 1e-6
"""Advantages that differ by less count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Groups as the critic reads them; for each of their turns, what was said there, and the alternatives."""

    books: list[_Book]
    responses: list[tuple[int, Response]]
    """With the index of their book; none while the critic warms up."""


async def propose_candidates(op: Op, context: StageContext, data: StepData) -> None:
    """Further replies to every turn that was taken; none while the critic warms up, as nothing is trained on it."""
    if context.progress.step == 0:
        await context.workers.learner(LearnerWorker.new_ranker)
    books = await _books(context, [group for group in data.scored or () if group])
    warms_up = context.progress.step < context.stage.algorithm.critic.warmup_steps
    data.candidates = Candidates(books=books, responses=[] if warms_up else await _offered(context, books))


async def update_ranker(op: Op, context: StageContext, data: StepData) -> None:
    """Passes over pairs of whole episodes, by their rewards."""
    algorithm = context.stage.algorithm
    pairs = [pair for book in _candidates(data).books for pair in _of_episodes(context, book)]
    reference = await response_logprobs(context, responses_of(pairs), LearnerWorker.logprobs, reference=True)
    done = [
        await _update(context, part, reference)
        for part in shuffled_parts(context, pairs, algorithm.batch_size, algorithm.critic.epochs, "critic order")
    ]
    data.row |= {"critic/pairs": len(pairs), **_ranker_metrics(done)}


async def rank_candidates(op: Op, context: StageContext, data: StepData) -> None:
    """Pairs of candidates for the same turn, by the critic's advantage."""
    books, offered = _candidates(data).books, _candidates(data).responses
    preference = context.stage.algorithm.preference
    reading = [books[book].reading(response) for book, response in offered]
    critic = await response_logprobs(context, reading, LearnerWorker.rank)
    reference = await response_logprobs(context, reading, LearnerWorker.logprobs, reference=True)
    by_book: list[list[Response]] = [[] for _ in books]
    for (book, response), read in zip(offered, reading, strict=True):
        by_book[book].append(replace(response, score=critic[read] - reference[read]))
    settings = replace(preference, margin=max(preference.margin, _ROUNDING))
    data.pairs = [pair for responses in by_book for pair in choose_pairs(responses, settings)]


def _candidates(data: StepData) -> Candidates:
    assert data.candidates is not None, "candidates are proposed before they are ranked"
    return data.candidates


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Book:
    """A group, and how the critic reads it."""

    group: Sequence[Scored]
    opening: tuple[int, ...] | None
    """What it reads in place of the agent's opening; that itself, if None."""

    def reading(self, side: Response) -> Response:
        own, weight = self.group[0].episode.turns[0].start, 1 / side.tokens
        return replace(side, sequences=tuple(with_opening(each, own, self.opening, weight) for each in side.sequences))


def with_opening(sequence: TrainSequence, own: int, opening: tuple[int, ...] | None, weight: float) -> TrainSequence:
    """With another opening, and a weight on each trained token."""
    ids, loss_mask = sequence.ids, sequence.loss_mask
    if opening is not None:
        ids = np.concatenate([np.asarray(opening, np.int32), ids[own:]])
        loss_mask = np.concatenate([np.zeros(len(opening), np.bool_), loss_mask[own:]])
    weights = (loss_mask * weight).astype(np.float32)
    return TrainSequence(ids=ids, loss_mask=loss_mask, advantages=np.zeros(len(ids), np.float32), weights=weights)


async def _books(context: StageContext, groups: Sequence[Sequence[Scored]]) -> list[_Book]:
    if not context.stage.algorithm.critic.privileged:
        return [_Book(group=group, opening=None) for group in groups]
    asked = [(group[0].episode.task, group[0].episode.opening) for group in groups]
    openings = await context.workers.rollout(
        RolloutWorker.openings, asked, play_settings(context, len(asked), sampling_settings(context))
    )
    return [_Book(group=group, opening=opening) for group, opening in zip(groups, openings, strict=True)]


def _of_episodes(context: StageContext, book: _Book) -> Iterator[Pair]:
    settings = replace(context.stage.algorithm.preference, level=Level.EPISODE, margin=0.0)
    pairs = build_pairs(apply_masks(book.group, context.stage, context.names()), settings)
    read = {side: book.reading(side) for side in responses_of(pairs)}
    for pair in pairs:
        yield Pair(better=read[pair.better], worse=read[pair.worse])


async def _update(
    context: StageContext, pairs: Sequence[Pair], reference: Mapping[Response, float]
) -> tuple[UpdateMetrics, PreferenceObjective]:
    critic, beta = context.stage.algorithm.critic, context.stage.algorithm.preference.beta
    now = await response_logprobs(context, responses_of(pairs), LearnerWorker.rank)
    lesson = preference_objective(pairs, now, reference, Preference(beta=beta))
    settings = replace(pair_settings(context), lr=context.value(critic.lr), max_grad_norm=critic.max_grad_norm)
    return await context.workers.compute(LearnerWorker.update_ranker, to_sequences(lesson.gains), settings), lesson


def _ranker_metrics(done: Sequence[tuple[UpdateMetrics, PreferenceObjective]]) -> dict[str, float]:
    if not done:
        return {}
    margins = np.concatenate([lesson.margins for _, lesson in done])
    return {
        "critic/loss": mean(lesson.loss for _, lesson in done if isfinite(lesson.loss)),
        "critic/accuracy": mean(margins > 0),
        "critic/grad_norm": mean(update.grad_norm for update, _ in done),
        "critic/lr": done[-1][0].lr,
    }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Place:
    """A turn that was taken, and that has alternatives."""

    book: int
    episode: Episode
    turn: Turn
    index: int

    @property
    def before(self) -> NDArray[np.int32]:
        return self.episode.segments[self.turn.segment].ids[: self.turn.start]

    @property
    def said(self) -> tuple[int, ...]:
        return tuple(self.episode.segments[self.turn.segment].ids[self.turn.start : self.turn.end].tolist())

    def side(self, reply: Sequence[int]) -> Response:
        ids = np.concatenate([self.before, np.asarray(reply, np.int32)])
        loss_mask = np.arange(len(ids)) >= len(self.before)
        sequence = TrainSequence(ids=ids, loss_mask=loss_mask, advantages=np.zeros(len(ids), np.float32))
        return Response(sequences=(sequence,), state=f"{self.episode.index}.{self.index}")


async def _offered(context: StageContext, books: Sequence[_Book]) -> list[tuple[int, Response]]:
    """For every turn, what was said there and the alternatives; with its book."""
    places = [place for at, book in enumerate(books) for place in _places(context, at, book)]
    further = range(1, context.stage.algorithm.preference.candidates)
    agent, sampling = context.stage.agent, sampling_settings(context)
    requests = [
        SampleRequest(
            prompt=tuple(place.before.tolist()),
            sampling=sampling,
            max_tokens=min(int(context.value(agent.tokens_per_turn)), agent.context_tokens - len(place.before)),
            seed=context.seed("candidate", place.book, place.episode.index, place.index, at),
        )
        for place in places
        for at in further
    ]
    drawn = iter(
        await context.workers.rollout(
            RolloutWorker.sample_replies, requests, play_settings(context, len(requests), sampling)
        )
    )
    return [
        (place.book, place.side(reply))
        for place in places
        for reply in (place.said, *(next(drawn).ids for _ in further))
    ]


def _places(context: StageContext, at: int, book: _Book) -> Iterator[_Place]:
    for scored, mask in apply_masks(book.group, context.stage, context.names()):
        for index, (turn, is_trained) in enumerate(zip(scored.episode.turns, mask.turns, strict=True)):
            if is_trained and turn.end > turn.start:
                yield _Place(book=at, episode=scored.episode, turn=turn, index=index)
