"""Weight sync: the probe by which a sampler proves that it holds the learner's weights, and their form on the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..protocols import (
    Floats,
    Scorer,
    TrainSequence,
)

__all__ = ["probe_ids", "probe_logprobs"]


def probe_ids(vocab: int, length: int = 48) -> tuple[int, ...]:
    """A sequence that touches tokens all over the vocabulary; the same in every run."""
    draws = np.random.Generator(np.random.PCG64(0)).integers(0, vocab, length)
    return tuple(int(token) for token in draws)


def probe_logprobs(scorer: Scorer, ids: Sequence[int]) -> Floats:
    """Of `ids[1:]`, each given all before it."""
    sequence = TrainSequence(
        ids=np.asarray(ids, np.int32),
        loss_mask=np.arange(len(ids)) > 0,
        advantages=np.zeros(len(ids), np.float32),
    )
    return scorer.logprobs([sequence], 1.0)[0][1:]
