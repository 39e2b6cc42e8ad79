"""Weight sync: the probe by which a sampler proves that it holds the learner's weights, and their form on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..protocols import Floats, Scorer, TrainSequence, WeightUpdate

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["pack_weights", "probe_ids", "probe_logprobs", "unpack_weights"]


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


def pack_weights(update: WeightUpdate) -> WeightUpdate:
    """Tensors as plain bytes: those of numpy cross processes without being copied, tensors do not."""
    import torch

    def plain(tensor: Tensor) -> tuple[Any, ...]:
        return tensor.reshape(-1).view(torch.uint8).cpu().numpy(), tensor.dtype, tensor.shape

    return replace(update, tensors=[(name, plain(tensor)) for name, tensor in update.tensors])  # type: ignore[misc]


def unpack_weights(update: WeightUpdate) -> WeightUpdate:
    """Tensors over the same memory; not to be written to."""
    import torch

    tensors: Any = update.tensors
    return replace(
        update,
        tensors=[(name, torch.from_numpy(data).view(dtype).view(shape)) for name, (data, dtype, shape) in tensors],
    )
