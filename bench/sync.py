"""Seconds from the learner's new weights to a sampler proven to hold them, for about 4 and 84 million parameters.

The whole of it, in one process: the learner's log-probs of the probe, the weights handed over and laid out, what was
cached of the old ones dropped, and the sampler's log-probs of the probe compared. Prints min, median and max.

    python bench/sync.py [--times 7] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import torch
from agym.dsl.model.recipe import Init, TokenizerInit
from agym.runtime.backends.hf_models import make_model, make_tokenizer
from agym.runtime.protocols import LearnerSettings, ProbeLimits, SamplerSettings
from agym.runtime.workers.learner_worker import LearnerWorker
from engines import in_prepared_process
from paired import seconds

_MODELS = (
    Init(layers=5, hidden=256, heads=4, kv_heads=2, tie_embeddings=True),
    Init(layers=17, hidden=640, heads=10, kv_heads=5, tie_embeddings=True),
)
_VOCAB = 512


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="the small model alone, three times")
    arguments = parser.parse_args()
    in_prepared_process()
    torch.set_num_threads(1)
    print("| parameters, million | wall s, min / median / max | process s, median |")
    print("|---|---|---|")
    for sizes in _MODELS[:1] if arguments.quick else _MODELS:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(sizes, Path(folder), 3 if arguments.quick else arguments.times))
    return 0


async def measure(sizes: Init, folder: Path, times: int) -> None:
    from agym.runtime.backends.deepspeed import DeepSpeedLearner
    from agym.runtime.backends.vllm import VllmSampler

    make_model(sizes, make_tokenizer(TokenizerInit(vocab=_VOCAB), ["abc"]), 0, folder, positions=512)
    learner = DeepSpeedLearner(LearnerSettings(model=folder))
    sampler = VllmSampler(SamplerSettings(model=folder, context_tokens=256, slots=8))
    worker = LearnerWorker(learner, lambda model: learner, ProbeLimits(floor=1e-4, ceiling=1e-3))
    worker.offer_prompts([range(1, 49), range(49, 97)])

    async def handed_over(version: int) -> None:
        await sampler.load(worker.handover(version))

    spent = [await seconds(partial(handed_over, version)) for version in range(times + 1)]
    walls = sorted(each.wall for each in spent[1:])
    parameters = sum(tensor.numel() for _, tensor in learner.weights()) / 1e6
    print(
        f"| {parameters:.1f} | {walls[0]:.3f} / {median(walls):.3f} / {walls[-1]:.3f} "
        f"| {median(each.process for each in spent[1:]):.3f} |",
        flush=True,
    )
    await sampler.close()
    learner.close()


if __name__ == "__main__":
    sys.exit(main())
