"""Sampler and learner on one card, in bf16: they agree, hand weights over, and make room for each other."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the engines: pip install '.[cuda]'")

import numpy as np  # noqa: E402
from agym.dsl.model.recipe import DType, Init, Lora, TokenizerInit  # noqa: E402
from agym.runtime.backends.engine_variables import missing_variables  # noqa: E402
from agym.runtime.backends.hf_models import make_model, make_tokenizer  # noqa: E402
from agym.runtime.protocols import (  # noqa: E402
    LearnerSettings,
    OptimizerSettings,
    ProbeLimits,
    SampleRequest,
    SamplerSettings,
    SamplingSettings,
    TrainSequence,
    UpdateSettings,
)
from agym.runtime.workers.learner_worker import LearnerWorker  # noqa: E402

pytestmark = [
    pytest.mark.heavy,
    # the engines' own
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; `agym doctor` says what is found"),
]
BENCH = Path(__file__).parents[2] / "bench" / "gpu.py"
MIB = 2**20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer(TokenizerInit(vocab=300), ["a few words to learn a vocabulary from"])
    make_model(Init(layers=2, hidden=128, heads=2, kv_heads=1, tie_embeddings=True), tokenizer, 0, folder)
    return folder


@pytest.fixture(scope="module")
def sampler(model: Path) -> Iterator[Any]:
    os.environ.update(missing_variables(os.environ, threads=1, cpu=False))
    from agym.runtime.backends.vllm import VllmSampler

    settings = SamplerSettings(
        model=model, dtype=DType.BF16, context_tokens=256, slots=64, memory_share=0.2, shares_gpu=True
    )
    engine = VllmSampler(settings)
    yield engine
    asyncio.run(engine.close())


@pytest.fixture
def learner(model: Path) -> Iterator[Callable[..., Any]]:
    from agym.runtime.backends.deepspeed import DeepSpeedLearner

    made = []

    def make(**settings: Any) -> Any:
        made.append(DeepSpeedLearner(LearnerSettings(**{"model": model, "dtype": DType.BF16, "zero": 2} | settings)))
        made[-1].set_optimizer(OptimizerSettings(), fresh=False)
        return made[-1]

    yield make
    for each in made:
        each.close()


def worker_of(learner: Any) -> LearnerWorker:
    worker = LearnerWorker(learner, lambda _: learner, ProbeLimits(floor=0.05, ceiling=0.1))
    worker.offer_prompts([range(10, 58)])
    return worker


async def played(sampler: Any, count: int = 32) -> list[TrainSequence]:
    requests = [
        SampleRequest(prompt=tuple(range(10 + at, 26 + at)), sampling=SamplingSettings(), max_tokens=32, seed=at)
        for at in range(count)
    ]
    replies = await asyncio.gather(*(sampler.sample(request) for request in requests))
    return [
        TrainSequence(
            ids=np.asarray([*request.prompt, *reply.ids], np.int32),
            loss_mask=np.arange(16 + len(reply.ids)) >= 16,
            advantages=np.where(np.arange(16 + len(reply.ids)) >= 16, (-1.0) ** at, 0).astype(np.float32),
            old_logprobs=np.asarray([0.0] * 16 + list(reply.logprobs), np.float32),
        )
        for at, (request, reply) in enumerate(zip(requests, replies, strict=True))
    ]


def furthest(sequences: list[TrainSequence], own: list[Any]) -> float:
    return max(
        float(np.abs(mine - each.old_logprobs)[each.loss_mask].max())  # type: ignore[operator]
        for each, mine in zip(sequences, own, strict=True)
    )


def test_the_learner_thinks_of_samples_what_the_sampler_thought(sampler: Any, learner: Callable[..., Any]) -> None:
    async def go() -> float:
        engine = learner()
        await sampler.load(worker_of(engine).handover(0))
        sequences = await played(sampler)
        await sampler.sleep()
        return furthest(sequences, engine.logprobs(sequences, 1.0))

    assert asyncio.run(go()) < 0.1


def test_new_weights_arrive_under_captured_graphs(sampler: Any, learner: Callable[..., Any]) -> None:
    async def go() -> float:
        engine = learner()
        worker = worker_of(engine)
        await sampler.load(worker.handover(0))
        sequences = await played(sampler)
        await sampler.sleep()
        assert engine.update(sequences, UpdateSettings(lr=1e-2)).fault is None
        # raises where the sampler's log-probs are not those of the new weights
        await sampler.load(worker.handover(1))
        sequences = await played(sampler)
        return furthest(sequences, engine.logprobs(sequences, 1.0))

    assert asyncio.run(go()) < 0.1


def test_adapters_arrive_under_captured_graphs(model: Path, learner: Callable[..., Any]) -> None:
    from agym.runtime.backends.vllm import VllmSampler

    lora = Lora(rank=4)
    settings = SamplerSettings(
        model=model, dtype=DType.BF16, context_tokens=256, slots=64, memory_share=0.2, eager=False, lora=lora
    )

    async def go() -> None:
        sampler, engine = VllmSampler(settings), learner(lora=lora)
        for version in range(3):
            await sampler.load(worker_of(engine).handover(version))
            sequences = await played(sampler)
            assert furthest(sequences, engine.logprobs(sequences, 1.0)) < 0.1
            assert engine.update(sequences, UpdateSettings(lr=1e-2)).fault is None
        await sampler.close()

    asyncio.run(go())


def test_a_resting_sampler_gives_its_memory_back_and_wakes_as_it_was(sampler: Any, learner: Callable[..., Any]) -> None:
    async def go() -> None:
        await sampler.load(worker_of(learner()).handover(0))
        before = await sampler.score(range(10, 40))
        free = torch.cuda.mem_get_info()[0]
        await sampler.sleep()
        assert torch.cuda.mem_get_info()[0] - free > 100 * MIB
        assert np.array_equal(await sampler.score(range(10, 40)), before)

    asyncio.run(go())


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_every_stage_of_zero_learns(sampler: Any, learner: Callable[..., Any], zero: int) -> None:
    async def go() -> None:
        engine = learner(zero=zero)
        await sampler.load(worker_of(engine).handover(0))
        sequences = await played(sampler)
        await sampler.sleep()
        metrics = engine.update(sequences, UpdateSettings(lr=1e-3))
        assert metrics.fault is None
        assert metrics.grad_norm > 0
        assert metrics.ratio_error < 0.2

    asyncio.run(go())


def test_the_bench_runs_on_this_card() -> None:
    ran = subprocess.run([sys.executable, BENCH, "--tiny"], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "| update |" in ran.stdout
