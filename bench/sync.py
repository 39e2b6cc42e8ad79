"""Seconds from the learner's new weights to a sampler proven to hold them, for about 4 and 84 million parameters.

The whole of it, in one process: the learner's log-probs of the probe, the weights handed over and laid out, what was
cached of the old ones dropped, and the sampler's log-probs of the probe compared. Prints min, median and max.
`--store`: the learner in another process, the weights through Ray's object store, in buckets; the two parts separately,
and seconds per GB of the whole.

    python bench/sync.py [--times 7] [--quick] [--store]
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from agym.dsl.model.recipe import Init, TokenizerInit
from agym.runtime.backends.hf_models import make_model, make_tokenizer
from agym.runtime.protocols import LearnerSettings, ProbeLimits, SamplerSettings
from agym.runtime.workers.learner_worker import LearnerWorker
from agym.runtime.workers.transfer import hand_over, take_over
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
    parser.add_argument("--store", action="store_true", help="through the object store, from another process")
    arguments = parser.parse_args()
    in_prepared_process()
    torch.set_num_threads(1)
    if arguments.store:
        print("| parameters, million | GB | hand over s, median | take over s, median | s per GB, min / median / max |")
        print("|---|---|---|---|---|")
    else:
        print("| parameters, million | wall s, min / median / max | process s, median |")
        print("|---|---|---|")
    run = measure_store if arguments.store else measure
    for sizes in _MODELS[:1] if arguments.quick else _MODELS:
        with tempfile.TemporaryDirectory() as folder:
            make_model(sizes, make_tokenizer(TokenizerInit(vocab=_VOCAB), ["abc"]), 0, Path(folder), positions=512)
            asyncio.run(run(Path(folder), 3 if arguments.quick else arguments.times))
    return 0


def start_learner(folder: Path) -> LearnerWorker:
    from agym.runtime.backends.deepspeed import DeepSpeedLearner

    learner = DeepSpeedLearner(LearnerSettings(model=folder))
    worker = LearnerWorker(learner, lambda model: learner, ProbeLimits(floor=1e-4, ceiling=1e-3))
    worker.offer_prompts([range(1, 49), range(49, 97)])
    return worker


def start_sampler(folder: Path) -> Any:
    from agym.runtime.backends.vllm.sampler import VllmSampler

    return VllmSampler(SamplerSettings(model=folder, context_tokens=256, slots=8))


class Learning:
    """The learner in a process of its own."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        self._worker = start_learner(folder)

    def hand_over(self, version: int) -> Any:
        return hand_over(self._worker, version)


async def measure_store(folder: Path, times: int) -> None:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=2**30)
    learner, sampler = ray.remote(Learning).remote(folder), start_sampler(folder)
    spent, size = list[tuple[float, float]](), 0
    for version in range(times + 1):
        started = time.perf_counter()
        shipment = await learner.hand_over.remote(version)
        between = time.perf_counter()
        await take_over(sampler, shipment)
        spent.append((between - started, time.perf_counter() - between))
        size = sum(math.prod(each.shape) * 4 for each in shipment.checksums.values())
    halves, gb = spent[1:], size / 1e9
    each = sorted(sum(both) / gb for both in halves)
    print(
        f"| {size / 4e6:.1f} | {gb:.3f} | {median(first for first, _ in halves):.3f} "
        f"| {median(second for _, second in halves):.3f} | {each[0]:.2f} / {median(each):.2f} / {each[-1]:.2f} |",
        flush=True,
    )
    await sampler.close()
    ray.shutdown()


async def measure(folder: Path, times: int) -> None:
    worker, sampler = start_learner(folder), start_sampler(folder)
    learner = worker.learner

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
