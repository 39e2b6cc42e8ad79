"""The fakes keep the promises of the protocols, so that what is built on them would hold with the real engines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from agym.runtime.backends.fake import FakeCritic, FakeLearner, FakeModel, FakeSampler, cycle
from agym.runtime.protocols import (
    FinishReason,
    Learner,
    Probe,
    Sampled,
    Sampler,
    SampleRequest,
    SamplingSettings,
    SyncError,
    TrainSequence,
    UpdateFault,
    UpdateLimits,
    UpdateSettings,
    ValueLearner,
    ValueSettings,
    WeightUpdate,
)

MODEL = FakeModel(vocab=10, skilled=cycle(10))


def engines() -> tuple[FakeSampler, FakeLearner]:
    sampler, learner = FakeSampler(model=MODEL), FakeLearner(model=MODEL)
    _: tuple[Sampler, Learner] = (sampler, learner)
    return sampler, learner


def handover(learner: FakeLearner, version: int, off_by: float = 0.0) -> WeightUpdate:
    ids = [3, 4, 9, 9]
    probe = Probe(ids=ids, logprobs=MODEL.logprobs(learner.skill, ids) + np.float32(off_by), tolerance=1e-6)
    return WeightUpdate(version=version, tensors=learner.weights(), probe=probe)


def ask(seed: int, **draw: object) -> SampleRequest:
    return SampleRequest(prompt=[0], draw=SamplingSettings(**draw), max_tokens=6, seed=seed)


async def rollout(sampler: FakeSampler, episodes: int) -> list[TrainSequence]:
    sequences = []
    for seed in range(episodes):
        drawn = await sampler.sample(ask(seed))
        ids = np.array([0, *drawn.ids], np.int32)
        right = np.diff(ids) % 10 == 1
        sequences.append(
            TrainSequence(
                ids=ids,
                loss_mask=np.array([False] + [True] * 6),
                advantages=np.append(0, np.where(right, 1, -1)).astype(np.float32),
                old_logprobs=np.append(0, drawn.logprobs).astype(np.float32),
            )
        )
    return sequences


def test_what_is_drawn_follows_the_seed_alone():
    async def drawn(seeds: list[int]) -> dict[int, Sampled]:
        sampler, learner = engines()
        await sampler.load(handover(learner, 0))
        return {seed: await sampler.sample(ask(seed)) for seed in seeds}

    assert asyncio.run(drawn([1, 2, 3])) == asyncio.run(drawn([3, 1, 2]))
    assert len({sampled.ids for sampled in asyncio.run(drawn([1, 2, 3])).values()}) == 3


def test_a_stop_token_ends_the_reply_and_belongs_to_it():
    async def scenario() -> None:
        sampler, learner = engines()
        await sampler.load(handover(learner, 0))
        stopped = await sampler.sample(ask(0, stop_ids=tuple(range(10))))
        assert (len(stopped.ids), stopped.finish) == (1, FinishReason.STOP)
        assert (await sampler.sample(ask(0))).finish is FinishReason.LENGTH

    asyncio.run(scenario())


def test_learner_agrees_with_the_sampler_and_learns():
    async def scenario() -> None:
        sampler, learner = engines()
        shares = []
        for version in range(20):
            await sampler.load(handover(learner, version))
            sequences = await rollout(sampler, 20)
            for scored, sequence in zip(learner.logprobs(sequences, 1.0), sequences, strict=True):
                np.testing.assert_array_equal(scored, sequence.old_logprobs)
            shares.append(np.mean([sequence.advantages[1:] > 0 for sequence in sequences]))
            assert learner.update(sequences, UpdateSettings(lr=0.3)).fault is None
        assert shares[0] < 0.6
        assert shares[-1] > 0.9

    asyncio.run(scenario())


def test_weights_that_are_not_the_learners_are_found_out():
    sampler, learner = engines()
    with pytest.raises(SyncError):
        asyncio.run(sampler.load(handover(learner, 0, off_by=1e-3)))


def test_refused_updates_change_nothing():
    sequence = TrainSequence(
        ids=np.array([0, 1], np.int32), loss_mask=np.array([False, True]), advantages=np.array([0, 5], np.float32)
    )
    broken = TrainSequence(
        ids=sequence.ids, loss_mask=sequence.loss_mask, advantages=sequence.advantages * np.float32(np.nan)
    )
    _, learner = engines()
    faults = [
        learner.update([sequence], UpdateSettings(lr=1.0, limits=UpdateLimits(grad_norm=1.0))).fault,
        learner.update([broken], UpdateSettings(lr=1.0)).fault,
        learner.update([], UpdateSettings(lr=1.0)).fault,
    ]
    assert faults == [UpdateFault.GRAD_NORM, UpdateFault.NAN, UpdateFault.EMPTY]
    assert (learner.skill, learner.updates) == (0.0, 0)


def test_saved_learner_goes_on_where_it_was(tmp_path: Path):
    FakeLearner(model=MODEL, skill=1.5, updates=7).save(tmp_path)
    _, learner = engines()
    learner.load(tmp_path)
    assert (learner.skill, learner.updates) == (1.5, 7)


@pytest.mark.parametrize("state", ["no weights", "paused", "closed"])
def test_sampler_that_cannot_answer_says_so(state: str):
    async def scenario() -> None:
        sampler, learner = engines()
        if state != "no weights":
            await sampler.load(handover(learner, 0))
            await {"paused": sampler.pause, "closed": sampler.close}[state]()
        with pytest.raises(RuntimeError, match="expected a sampler with weights"):
            await sampler.sample(ask(0))

    asyncio.run(scenario())


def told(target: float) -> TrainSequence:
    ids, loss_mask = np.array([3, 4, 5], np.int32), np.array([False, True, False])
    nothing, targets = np.zeros(3, np.float32), np.full(3, target, np.float32)
    return TrainSequence(ids=ids, loss_mask=loss_mask, advantages=nothing, values=nothing, value_targets=targets)


def test_critic_comes_to_expect_what_it_is_told_and_goes_on_where_it_was(tmp_path: Path):
    critic = FakeCritic()
    _: ValueLearner = critic
    losses = [critic.update([told(0.5)], ValueSettings(lr=0.5)).loss for _ in range(20)]
    assert losses[0] == 0.125
    assert losses[-1] < 1e-9
    assert critic.values([told(0)])[0].tolist() == pytest.approx([0.5, 0, 0], abs=1e-4)
    critic.save(tmp_path)
    other = FakeCritic()
    other.load(tmp_path)
    assert other == critic


def test_refused_updates_of_a_critic_change_nothing():
    critic = FakeCritic(expected={3: 1.0})
    faults = [critic.update(batch, ValueSettings(lr=1.0)).fault for batch in ([told(np.nan)], [])]
    assert faults == [UpdateFault.NAN, UpdateFault.EMPTY]
    assert critic.expected == {3: 1.0}
