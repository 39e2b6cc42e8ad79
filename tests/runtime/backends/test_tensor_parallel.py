"""An engine of which two processes hold a half each: what it is sent, holds and samples, against an engine in one."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agym.dsl.model.recipe import Lora
from agym.runtime.protocols import Sampled, SamplerSettings, SyncError

from .conftest import REAL, model_folder
from .test_lora import move
from .test_sampler import PROBE, handover, request, shift

pytestmark = REAL

LORA = Lora(rank=4, alpha=16, targets=("q_proj", "v_proj", "o_proj", "up_proj", "down_proj"))


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_two_halves_hold_what_was_sent_and_sample_what_one_whole_does(
    tmp_path: Path, learner: Callable[..., Any], lora: Lora | None
) -> None:
    """One key-value head of which both have a copy, and layers packed for the processor."""
    from agym.runtime.backends.vllm.sampler import VllmSampler

    folder = model_folder(tmp_path, hidden=192)
    old, new = learner(model=folder, lora=lora), learner(model=folder, lora=lora)
    (move if lora else shift)(new)

    async def scenario(halves: int) -> list[Sampled]:
        settings = SamplerSettings(model=folder, context_tokens=256, slots=4, lora=lora, tensor_parallel=halves)
        sampler, drawn = VllmSampler(settings), list[Sampled]()
        for version, engine in enumerate((old, new)):
            proof = await sampler.load(handover(engine, version, tolerance=1e-4))
            assert (proof.compared, proof.unproven) == (len(engine.checksums()), ())
            asked = [request(PROBE[:at], at, 12, temperature=at % 3 / 2) for at in range(30, 36)]
            drawn += await asyncio.gather(*map(sampler.sample, asked))
        wrong = [(name, each.clone()) for name, each in new.weights()]
        wrong[-1][1][-1] = 0.0  # the last row is the second half's
        with pytest.raises(SyncError, match=f"version 2 of the weights: '{wrong[-1][0]}' arrived with other values"):
            await sampler.load(dataclasses.replace(handover(new, 2), tensors=wrong))
        await sampler.load(handover(new, 2, tolerance=1e-4))
        await sampler.close()
        return drawn

    one, two = (asyncio.run(scenario(halves)) for halves in (1, 2))
    assert [each.ids for each in one] == [each.ids for each in two]
    np.testing.assert_allclose(
        np.concatenate([each.logprobs for each in one]), np.concatenate([each.logprobs for each in two]), atol=1e-4
    )
