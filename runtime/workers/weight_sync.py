"""Weight sync: the text that checks that a sampler computes as the learner does, and the weights' form in transit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocols import NamedTensors, Probe, ProbeLimits, Scorer, TrainSequence

__all__ = ["PackedTensor", "ProbeText", "free_cache", "pack_weights", "unpack_weights"]

PackedTensor = tuple[str, NDArray[np.uint8], Any, Any]
"""Name, bytes, dtype and shape."""

_SEQUENCES, _TOKENS, _CONTEXT = 2, 32, 8
"""Of a probe. Both engines compute it at every sync. The first tokens are not compared: without their context they have
low probability, and two engines' rounding differs most there."""


class ProbeText:
    """Text to check a sync with: the newest sequences that were trained on; before there are any, prompts."""

    def __init__(self) -> None:
        self._windows: list[NDArray[np.int32]] = []
        self._is_learned = False

    def offer_prompts(self, prompts: Sequence[Sequence[int]]) -> None:
        if not self._is_learned:
            self._windows = _windows([np.asarray(prompt, np.int32) for prompt in prompts])

    def note_learned(self, sequences: Sequence[TrainSequence]) -> None:
        if windows := _windows([sequence.ids for sequence in sequences]):
            self._windows, self._is_learned = windows, True

    def score(self, scorer: Scorer, limits: ProbeLimits) -> Probe:
        if not self._windows:
            raise ValueError("there is no text to prove the weights with: offer prompts first")
        sequences = [
            TrainSequence(ids=ids, loss_mask=np.arange(len(ids)) > 0, advantages=np.zeros(len(ids), np.float32))
            for ids in self._windows
        ]
        logprobs = [each[_skipped(len(each)) :] for each in scorer.logprobs(sequences, 1.0)]
        return Probe(sequences=[ids.tolist() for ids in self._windows], logprobs=logprobs, limits=limits)


def _skipped(length: int) -> int:
    """Tokens that are context alone; of a short sequence its first half."""
    return max(1, min(_CONTEXT, length // 2))


def _windows(sequences: Sequence[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
    """The ends of the last ones, each shorter than the sequence: one of full length is no prompt for a sampler."""
    windows = [ids[1:][-_TOKENS:] for ids in sequences]
    return [ids for ids in windows if len(ids) > 1][-_SEQUENCES:]


def pack_weights(tensors: NamedTensors) -> list[PackedTensor]:
    """Return tensors as plain bytes: those of numpy cross processes without being copied, tensors do not."""
    import torch

    return [
        (name, tensor.reshape(-1).view(torch.uint8).cpu().numpy(), tensor.dtype, tensor.shape)
        for name, tensor in tensors
    ]


def unpack_weights(packed: Sequence[PackedTensor]) -> NamedTensors:
    """Return tensors over the same memory; not to be written to."""
    import torch

    return [(name, torch.from_numpy(data).view(dtype).view(shape)) for name, data, dtype, shape in packed]


def free_cache() -> None:
    """Give back the GPU memory that torch keeps cached in this process without using it."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
