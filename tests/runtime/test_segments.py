"""An episode cut into segments counts as one: it weighs, and its ratio is, what it would be in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from agym.dsl.model.algorithm import Aggregation, Correction, Importance, Level, LossKind
from agym.runtime.engine import OutcomeKind
from agym.runtime.learning.importance import has_segments, share_log_ratios, weigh_sequences
from agym.runtime.learning.loss import LossInputs, compute_loss, compute_token_scale
from agym.runtime.learning.packing import compute_normaliser, pack
from agym.runtime.learning.training_batch import build_training_batch, score_groups
from agym.runtime.protocols import LossSettings, TrainSequence
from agym.runtime.rollout.episode import Episode, Group

from .conftest import RECIPE, plan_of
from .factories import make_episode, make_segment, make_turn

CLOCK = {"step": 0.0, "total_step": 0.0, "stage": "exploit", "stage_index": 1.0}
WORDS = 4
TURNS = 6
CUTS = {"whole": (6,), "in two": (3, 3), "as by a window": (1, 1, 1, 1, 1, 1), "as by summaries": (4, 1, 1)}


def episode(words: Sequence[int], turns_per_segment: Sequence[int], score: float) -> Episode:
    """Turns of two tokens after a prompt of one, `turns_per_segment` of them in each segment."""
    segments, turns, pending = [], [], list(words)
    for number, count in enumerate(turns_per_segment):
        ids, sampled = [0], [False]
        for _ in range(count):
            turns.append(make_turn(len(ids), len(ids) + 2, segment=number, state=str(len(turns))))
            ids += [pending.pop(0), pending.pop(0), 0]
            sampled += [True, True, False]
        # as if the sampler had had slightly other weights for every token
        drawn = np.where(sampled, -1.3 - 0.01 * np.arange(len(ids)) % 0.07 - 0.02 * number, 0)
        segments.append(make_segment(sampled, ids, drawn))
    return make_episode(segments, turns, score=score, success=score >= 1)


def resampled(cut: Episode) -> Episode:
    """The same episode with log-probs that depend on its tokens' order alone, not on where it was cut."""
    place, segments = 0, []
    for segment in cut.segments:
        logprobs = segment.logprobs.copy()
        for at in np.flatnonzero(segment.sampled):
            logprobs[at] = -1.3 - 0.05 * (place % 5)
            place += 1
        segments.append(replace(segment, logprobs=logprobs))
    return replace(cut, segments=tuple(segments))


def batch(turns_per_segment: Sequence[int]) -> list[TrainSequence]:
    """Three groups of two episodes; in each the first is cut as told and the other is in one piece."""
    stage = plan_of(RECIPE, "reward={}").stages[1].settings
    random, groups = np.random.default_rng(3), []
    for _ in range(3):
        first, second = random.integers(1, WORDS, (2, 2 * TURNS)).tolist()
        pair = resampled(episode(first, turns_per_segment, 1.0)), resampled(episode(second, (TURNS,), 0.0))
        groups.append(Group(task=pair[0].task, episodes=pair))
    return build_training_batch(score_groups(groups, stage, 0.0, CLOCK, {})[0], stage, CLOCK).sequences


def gradient(sequences: Sequence[TrainSequence], settings: LossSettings, capacity: int = 1000) -> torch.Tensor:
    """Of the loss of one update, in micro-batches of `capacity` tokens, for a policy of four words."""
    logits = torch.tensor([0.3, -0.2, 0.1, 0.0], dtype=torch.float64, requires_grad=True)
    if settings.ratio is Level.EPISODE and has_segments(sequences):
        known = logits.detach().log_softmax(0).numpy()
        sequences = share_log_ratios(sequences, [known[each.ids].astype(np.float32) for each in sequences])
    whole = compute_normaliser(sequences)
    for row in pack(sequences, capacity, torch.device("cpu")):
        terms = compute_loss(
            LossInputs(
                logprobs_N=logits.log_softmax(0)[row.targets_N],
                entropy_N=torch.zeros(len(row.targets_N)),
                advantages_N=row.advantages_N,
                scale_N=compute_token_scale(
                    row.episode_lengths_S, row.sequence_N, settings.aggregation, settings.length, whole
                ),
                unit_N=row.units(settings.ratio),
                shared_log_ratio_N=row.shared_log_ratio_N,
                old_N=row.old_N,
                weights_N=row.weights_N,
            ),
            settings,
        )
        terms.loss.backward()
    assert logits.grad is not None
    return logits.grad


@pytest.mark.parametrize("cut", [name for name in CUTS if name != "whole"])
@pytest.mark.parametrize("aggregation", list(Aggregation))
@pytest.mark.parametrize(
    ("kind", "ratio"),
    [
        (LossKind.PPO_CLIP, Level.TOKEN),
        (LossKind.PPO_CLIP, Level.TURN),
        (LossKind.GSPO, Level.EPISODE),
        (LossKind.CISPO, Level.TOKEN),
        (LossKind.POLICY_GRADIENT, Level.TOKEN),
    ],
)
@pytest.mark.parametrize("capacity", [1000, 8])
def test_a_cut_episode_moves_the_policy_as_a_whole_one_does(
    cut: str, aggregation: Aggregation, kind: LossKind, ratio: Level, capacity: int
) -> None:
    settings = LossSettings(kind=kind, ratio=ratio, aggregation=aggregation, length=20, clip_low=0.05, clip_high=0.05)
    whole = gradient(batch(CUTS["whole"]), settings)
    assert whole.abs().max() > 1e-4
    torch.testing.assert_close(gradient(batch(CUTS[cut]), settings, capacity), whole, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("cut", CUTS)
def test_episodes_are_counted_and_not_their_segments(cut: str) -> None:
    sequences = batch(CUTS[cut])
    assert len(sequences) == 3 * (len(CUTS[cut]) + 1)
    assert compute_normaliser(sequences).sequences == 6
    (row,) = pack(sequences, 1000, torch.device("cpu"))
    scale = compute_token_scale(
        row.episode_lengths_S, row.sequence_N, Aggregation.SEQUENCE_MEAN, None, compute_normaliser(sequences)
    )
    assert scale.tolist() == pytest.approx([1 / (6 * 2 * TURNS)] * len(row.targets_N))


@pytest.mark.parametrize("correction", [Correction.TRUNCATE, Correction.MASK])
@pytest.mark.parametrize("level", list(Level))
def test_importance_of_an_episode_is_that_of_all_its_segments(correction: Correction, level: Level) -> None:
    settings = Importance(correction=correction, level=level, cap=1.3, floor=0.7)

    def weights(turns_per_segment: Sequence[int]) -> np.ndarray:
        sequences = batch(turns_per_segment)
        own = [np.where(each.loss_mask, -1.38 - 0.01 * each.ids, 0).astype(np.float32) for each in sequences]
        weighed = weigh_sequences(sequences, own, settings)
        assert all(each.old_logprobs is mine for each, mine in zip(weighed, own, strict=True))
        return np.concatenate([each.weights[each.loss_mask] for each in weighed if each.weights is not None])

    whole = weights(CUTS["whole"])
    assert len(set(whole.tolist())) > 1
    for cut in CUTS.values():
        np.testing.assert_allclose(weights(cut), whole, rtol=1e-6)


@pytest.mark.parametrize(
    ("memory", "tokens"), [("{kind: window, turns: 1}", 40), ("{kind: summary, turns: 1, tokens: 2}", 64)]
)
def test_a_run_never_parts_the_segments_of_an_episode(new_run: Any, memory: str, tokens: int) -> None:
    run, seen = new_run(f"agent.memory={memory}", f"agent.context_tokens={tokens}", "schedule.2.turns=6"), []

    def watch(number: int, sequences: Sequence[TrainSequence]) -> None:
        seen.append([each.episode for each in sequences])

    run.learner.faulty = watch
    assert run.go().kind is OutcomeKind.FINISHED
    updates, cut = iter(seen), 0
    for row in run.steps():
        found = [next(updates) for _ in range(row["train/updates"])]
        if row["stage"] != "imitate":
            cut += sum(len(numbers) - len(set(numbers)) for numbers in found)
            assert sum(len(set(numbers)) for numbers in found) == len(set().union(*found))
    assert cut, "no episode was cut"


def test_an_episodes_mean_log_ratio_is_bounded_as_a_whole() -> None:
    far = torch.tensor([-60.0, 30.0, 0.0, 0.0])
    inputs = LossInputs(
        logprobs_N=far.clone().requires_grad_(),
        entropy_N=torch.zeros(4),
        advantages_N=torch.ones(4),
        scale_N=torch.ones(4),
        unit_N=torch.zeros(4, dtype=torch.long),
        old_N=torch.zeros(4),
    )
    settings = LossSettings(kind=LossKind.GSPO, ratio=Level.EPISODE, clip_low=0.9999999, clip_high=1e9)
    # the mean of -60, 30, 0 and 0 is -7.5; with each of them held within 20 it would be 0
    assert compute_loss(inputs, settings).ratio.item() == pytest.approx(4 * np.exp(-7.5), rel=1e-4)
