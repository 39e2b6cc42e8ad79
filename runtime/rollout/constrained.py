"""Constrained decoding over valid actions (`agent: {guided: true}`).

At each token, log-probs are those of the distribution over the tokens that continue a valid reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..protocols import FinishReason, Sampled, Sampler, SampleRequest
from ..seeds import derive

__all__ = ["sample_valid_action"]

_NO_VERSION = -1
"""Version of a token that was not chosen by any weights."""


async def sample_valid_action(sampler: Sampler, request: SampleRequest, replies: Sequence[tuple[int, ...]]) -> Sampled:
    """Sample one of the replies; each ends with the end token, so none is a prefix of another."""
    ids, logprobs, versions, candidates = list[int](), list[float](), list[int](), set(replies)
    while tuple(ids) not in candidates and len(ids) < request.max_tokens:
        options = tuple(sorted({reply[len(ids)] for reply in candidates}))
        if len(options) == 1:
            ids, logprobs, versions = [*ids, *options], [*logprobs, 0.0], [*versions, _NO_VERSION]
            continue
        one = await sampler.sample(
            replace(
                request,
                prompt=(*request.prompt, *ids),
                sampling=replace(request.sampling, allowed=options),
                max_tokens=1,
                seed=derive(request.seed, "token", len(ids)),
            )
        )
        ids, logprobs, versions = [*ids, *one.ids], [*logprobs, *one.logprobs], [*versions, *one.versions]
        candidates = {reply for reply in candidates if reply[len(ids) - 1] == ids[-1]}
    finish = FinishReason.STOP if tuple(ids) in candidates else FinishReason.LENGTH
    return Sampled(ids=tuple(ids), logprobs=tuple(logprobs), versions=tuple(versions), finish=finish)
