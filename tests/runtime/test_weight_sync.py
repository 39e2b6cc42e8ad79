"""The text that proves a sync, and how a run reports what could not be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agym.runtime.protocols import Floats, ProbeLimits, SyncProof, TrainSequence
from agym.runtime.workers.weight_sync import ProbeText

LIMITS = ProbeLimits(floor=1e-4, ceiling=1e-3)


class Scorer:
    def logprobs(self, sequences: Any, temperature: float) -> list[Floats]:
        return [-each.ids.astype(np.float32) * each.loss_mask for each in sequences]


def learned(*ids: int) -> TrainSequence:
    return TrainSequence(
        ids=np.array(ids, np.int32), loss_mask=np.ones(len(ids), bool), advantages=np.zeros(len(ids), np.float32)
    )


def test_prompts_are_the_text_until_something_was_learned_from() -> None:
    text = ProbeText()
    text.offer_prompts([(1, 2, 3), (9,)])
    assert text.score(Scorer(), LIMITS).sequences == [[2, 3]]
    text.offer_prompts([(4, 5, 6)])
    assert text.score(Scorer(), LIMITS).sequences == [[5, 6]]
    text.note_learned([learned(1, 2, 3), learned(0, 4, 4, 4), learned(0, 5, 5)])
    text.offer_prompts([(7, 8, 9)])
    probe = text.score(Scorer(), LIMITS)
    assert probe.sequences == [[4, 4, 4], [5, 5]]
    assert [each.tolist() for each in probe.logprobs] == [[-4, -4], [-5]]
    assert probe.limits is LIMITS


def test_a_long_episode_gives_its_end_and_the_first_of_it_are_context_alone() -> None:
    text = ProbeText()
    text.note_learned([learned(*range(500))])
    probe = text.score(Scorer(), LIMITS)
    assert probe.sequences == [list(range(468, 500))]
    assert [-each for each in probe.logprobs[0].tolist()] == list(range(476, 500))


def test_of_a_short_text_half_is_compared() -> None:
    text = ProbeText()
    text.note_learned([learned(*range(7))])
    probe = text.score(Scorer(), LIMITS)
    assert probe.sequences == [[1, 2, 3, 4, 5, 6]]
    assert probe.logprobs[0].tolist() == [-4, -5, -6]


def test_what_is_too_short_to_score_is_no_text() -> None:
    text = ProbeText()
    text.offer_prompts([(1, 2, 3)])
    text.note_learned([learned(1, 2)])
    assert text.score(Scorer(), LIMITS).sequences == [[2, 3]]
    with pytest.raises(ValueError, match="there is no text to prove the weights with"):
        ProbeText().score(Scorer(), LIMITS)


def test_a_run_proves_its_first_sync_with_the_stages_prompts_and_the_next_with_episodes(new_run: Any) -> None:
    run, probes = new_run("schedule.0.until=step >= 1"), []
    load = run.sampler.load

    async def noted(update: Any) -> SyncProof:
        probes.append(update.probe.sequences)
        return await load(update)

    run.sampler.load = noted
    run.go()
    assert len(probes) > 2
    assert all(len(ids) > 1 for sequences in probes for ids in sequences)
    assert probes[0] != probes[-1]


def test_kinds_that_log_probs_alone_prove_are_told_once(new_run: Any) -> None:
    run, notes = new_run(), []
    load = run.sampler.load

    async def partly(update: Any) -> SyncProof:
        await load(update)
        return SyncProof(compared=3, unproven=("model.layers.*.experts.weight",), difference=0.0)

    run.sampler.load, run.reporter.note = partly, notes.append
    run.go()
    assert [note for note in notes if note.startswith("sync: ")] == [
        "sync: model.layers.*.experts.weight cannot be compared with what was sent; only log-probs check them"
    ]
