"""Claim: on a card the seams cost little: sampling goes at the pace of a bare engine, learning uses the card.

A model of Qwen3-0.6B's shape with random weights, made here, in bf16, sampler and learner on one card. Measured:
rollout tokens/s, episodes of several turns through the sampler, over a bare loop on the same engine with the same
requests turn by turn (floor 0.85, aim 0.95); update tokens/s, and model FLOP utilisation, 6 N D over seconds and the
card's dense bf16 peak (N: all weights that multiply, that is all, since the tied embedding is also the output layer; D:
tokens; recomputed activations are not counted), with attention's share, 6 x layers x heads x head width x mean length
per token for a causal forward and backward, shown beside it; peak memory; seconds of a sync, proof included, and of the
sampler's rest and waking; the learner's log-probs of what the sampler drew.

    python bench/gpu.py [--quick] [--tiny]

`--tiny` shows, with a toy shape on whatever there is, that the bench itself works; its figures say nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from agym.runtime.backends.engine_variables import missing_variables

if TYPE_CHECKING:
    from agym.runtime.backends.deepspeed import DeepSpeedLearner
    from agym.runtime.backends.vllm import VllmSampler
    from agym.runtime.protocols import TrainSequence
    from agym.runtime.workers.learner_worker import LearnerWorker

GIB = 2**30
PEAKS = {"H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "H200": 989e12, "A100": 312e12}
"""Dense bf16 FLOP/s by a part of the card's name; the first that fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What is run."""

    layers: int = 28
    hidden: int = 1024
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    intermediate: int = 3072
    vocab: int = 151936
    episodes: int = 256
    turns: int = 4
    given: int = 128
    """Tokens before each reply."""
    drawn: int = 128
    """Tokens of each reply."""
    micro_batch: int = 16384
    times: int = 3


SIZES = {
    "whole": Size(),
    "quick": Size(episodes=64, turns=2, times=1),
    "tiny": Size(
        layers=2, hidden=64, heads=2, kv_heads=1, head_dim=32, intermediate=128, vocab=512,
        episodes=8, turns=2, given=16, drawn=16, micro_batch=512, times=1,
    ),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_const", const="quick", dest="size", help="a quarter of the episodes")
    parser.add_argument("--tiny", action="store_const", const="tiny", dest="size", help=argparse.SUPPRESS)
    parser.set_defaults(size="whole")
    size = parser.parse_args().size
    if missing := missing_variables(os.environ, threads=1, cpu=size == "tiny"):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **missing})
    import torch

    if size != "tiny" and not torch.cuda.is_available():
        print("not run: PyTorch finds no CUDA device here")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(Bench(SIZES[size], Path(folder)).run())
    return 0


def make_model(size: Size, folder: Path) -> int:
    """Writes a model folder; returns how many weights it has."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=size.vocab,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_dim,
        intermediate_size=size.intermediate,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


# --- the card ------------------------------------------------------------------------------------------------------


def card() -> str:
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "no card"


def peak_flops() -> float:
    return next((flops for name, flops in PEAKS.items() if name in card()), float("nan"))


def used() -> int:
    """Bytes of the card that are taken, by whomever."""
    import torch

    if not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def now() -> float:
    """The time when the card has done all that it was told."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return perf_counter()


async def seconds(work: Callable[[], Awaitable[object]]) -> float:
    started = now()
    await work()
    return now() - started


@contextmanager
def peak_memory(found: dict[str, int], name: str) -> Iterator[None]:
    """The most that tensors of this process took meanwhile."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    yield
    found[name] = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0


# --- rollout -------------------------------------------------------------------------------------------------------


def opening(size: Size, episode: int, turn: int) -> list[int]:
    """What is said before a reply: the same in both loops, and different in each episode."""
    return [(7919 * episode + 104729 * turn + 31 * at) % size.vocab for at in range(size.given)]


async def by_sampler(sampler: VllmSampler, size: Size, run: int) -> list[Any]:
    """Episodes as coroutines, as a run plays them; returns ids, log-probs and where replies stand."""
    from agym.runtime.protocols import SampleRequest, SamplingSettings

    async def episode(at: int) -> tuple[list[int], list[float]]:
        ids: list[int] = []
        logprobs: list[float] = []
        for turn in range(size.turns):
            ids += opening(size, at, turn)
            logprobs += [0.0] * size.given
            request = SampleRequest(
                prompt=tuple(ids), sampling=SamplingSettings(), max_tokens=size.drawn, seed=at * size.turns + turn + run
            )
            reply = await sampler.sample(request)
            ids += reply.ids
            logprobs += reply.logprobs
        return ids, logprobs

    await sampler.forget()
    return list(await asyncio.gather(*(episode(at) for at in range(size.episodes))))


def by_bare_engine(sampler: VllmSampler, size: Size, run: int) -> None:
    """The same requests to the same core, without a coroutine, a future or a record."""
    from agym.runtime.backends.vllm import _params, core_request
    from agym.runtime.protocols import SampleRequest, SamplingSettings

    core: Any = sampler._core
    core.reset_prefix_cache()
    texts: dict[str, list[int]] = {}

    def ask(at: int, turn: int, ids: list[int]) -> None:
        name = f"bare-{at}-{turn}"
        texts[name] = ids = ids + opening(size, at, turn)
        seed = at * size.turns + turn + run
        params = _params(SampleRequest(prompt=ids, sampling=SamplingSettings(), max_tokens=size.drawn, seed=seed))
        core.add_request(core_request(name, list(ids), params))

    for at in range(size.episodes):
        ask(at, 0, [])
    while texts:
        for output in core.get_output().outputs:
            texts[output.request_id] += output.new_token_ids
            if output.finish_reason is not None:
                _, at, turn = output.request_id.split("-")
                ids = texts.pop(output.request_id)
                if int(turn) + 1 < size.turns:
                    ask(int(at), int(turn) + 1, ids)


# --- the bench -----------------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, size: Size, folder: Path) -> None:
        self._size = size
        self._folder = folder
        self._peaks: dict[str, int] = {}
        self._rows: list[tuple[str, str]] = []

    async def run(self) -> None:
        import torch
        from agym.runtime.backends.deepspeed import DeepSpeedLearner
        from agym.runtime.backends.vllm import VllmSampler
        from agym.runtime.protocols import ProbeLimits
        from agym.runtime.workers.learner_worker import LearnerWorker

        size = self._size
        weights = make_model(size, self._folder)
        self._tell("card", card())
        self._tell("weights", f"{weights / 1e6:.0f} M, bf16")
        with peak_memory(self._peaks, "both started"):
            sampler = VllmSampler(self._sampler_settings())
            learner = DeepSpeedLearner(self._learner_settings())
        worker = LearnerWorker(learner, lambda _: learner, ProbeLimits(floor=0.05, ceiling=0.2))
        worker.offer_prompts([range(1, 49), range(49, 97)])
        try:
            await self._sync(sampler, worker)
            played = await self._rollout(sampler)
            await self._rest(sampler)
            sequences = self._logprobs(learner, played)
            await sampler.sleep()
            self._update(learner, sequences, weights)
            await self._sync(sampler, worker)
        finally:
            await sampler.close()
            learner.close()
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
        for name, most in self._peaks.items():
            self._tell(f"peak memory of tensors, {name}", f"{most / GIB:.2f} GiB")
        self._show()

    def _tell(self, name: str, value: str) -> None:
        self._rows.append((name, value))

    def _show(self) -> None:
        print("| what | seen |\n|---|---|")
        print("\n".join(f"| {name} | {value} |" for name, value in self._rows))

    def _sampler_settings(self) -> Any:
        import torch
        from agym.dsl.model.recipe import DType
        from agym.runtime.protocols import SamplerSettings

        size = self._size
        on_card = torch.cuda.is_available()
        return SamplerSettings(
            model=self._folder,
            dtype=DType.BF16,
            context_tokens=size.turns * (size.given + size.drawn) + 1,
            slots=size.episodes,
            memory_share=0.4,
            shares_gpu=on_card,
            eager=not on_card,
        )

    def _learner_settings(self) -> Any:
        from agym.dsl.model.recipe import DType
        from agym.runtime.protocols import LearnerSettings

        return LearnerSettings(
            model=self._folder,
            dtype=DType.BF16,
            zero=1,
            tokens_per_micro_batch=self._size.micro_batch,
            activation_checkpointing=True,
        )

    async def _sync(self, sampler: VllmSampler, worker: LearnerWorker) -> None:
        times = [await seconds(lambda: sampler.load(worker.handover(0))) for _ in range(self._size.times + 1)]
        self._tell("sync, proof included", f"{median(times[1:] or times):.3f} s (first {times[0]:.3f} s)")

    async def _rollout(self, sampler: VllmSampler) -> list[Any]:
        size = self._size
        tokens = size.episodes * size.turns * size.drawn
        await by_sampler(sampler, size, -1)
        ours, bare, played = [], [], list[Any]()
        with peak_memory(self._peaks, "sampling"):
            # by turns, so that a card that slows down slows both
            for run in range(size.times):
                started = now()
                by_bare_engine(sampler, size, run)
                bare.append(tokens / (now() - started))
                started = now()
                played = await by_sampler(sampler, size, run)
                ours.append(tokens / (now() - started))
        self._tell("rollout, a bare engine", f"{median(bare):,.0f} tokens/s")
        self._tell("rollout, the sampler", f"{median(ours):,.0f} tokens/s")
        self._tell("the sampler over a bare engine", f"{median(ours) / median(bare):.2f} (floor 0.85, aim 0.95)")
        self._tell("memory taken of the card, sampling", f"{used() / GIB:.1f} GiB")
        return played

    async def _rest(self, sampler: VllmSampler) -> None:
        before = used()
        resting = await seconds(sampler.sleep)
        freed = before - used()
        waking = await seconds(sampler.forget)
        self._tell("sampler rests", f"{resting:.2f} s, {freed / GIB:.1f} GiB given back, wakes in {waking:.2f} s")

    def _logprobs(self, learner: DeepSpeedLearner, played: Sequence[Any]) -> list[TrainSequence]:
        import numpy as np
        from agym.runtime.protocols import TrainSequence

        size = self._size
        mask = np.tile(np.arange(size.given + size.drawn) >= size.given, size.turns)
        draws = np.random.default_rng(0)
        sequences = [
            TrainSequence(
                ids=np.asarray(ids, np.int32),
                loss_mask=mask,
                advantages=np.where(mask, draws.normal(), 0).astype(np.float32),
                old_logprobs=np.asarray(logprobs, np.float32),
            )
            for ids, logprobs in played
        ]
        own = learner.logprobs(sequences, 1.0)
        apart = np.concatenate(
            [(mine - each.old_logprobs)[mask] for each, mine in zip(sequences, own, strict=True)]  # type: ignore[operator]
        ).astype(np.float64)
        kl = float((np.expm1(apart) - apart).mean())
        size_of = f"max {np.abs(apart).max():.1e}, mean {np.abs(apart).mean():.1e}, k3 {kl:.1e}"
        self._tell(f"learner's log-probs less the sampler's, {len(apart)} tokens", size_of)
        return sequences

    def _update(self, learner: DeepSpeedLearner, sequences: Sequence[TrainSequence], weights: int) -> None:
        from agym.runtime.protocols import OptimizerSettings, UpdateSettings

        size = self._size
        learner.set_optimizer(OptimizerSettings(), fresh=False)
        learner.update(sequences, UpdateSettings(lr=1e-6))
        times = []
        with peak_memory(self._peaks, "learning"):
            for _ in range(size.times):
                started = now()
                metrics = learner.update(sequences, UpdateSettings(lr=1e-6))
                times.append(now() - started)
                assert metrics.fault is None, metrics
        tokens = sum(len(each.ids) for each in sequences)
        length = tokens / len(sequences)
        pace = tokens / median(times)
        by_weights = 6 * weights
        by_attention = 6 * size.layers * size.heads * size.head_dim * length
        self._tell("update", f"{pace:,.0f} tokens/s, {tokens} tokens in {metrics.micro_batches} micro-batches")
        self._tell("MFU, 6 N D", f"{pace * by_weights / peak_flops():.1%} of {peak_flops() / 1e12:.0f} TFLOP/s")
        self._tell("MFU with attention", f"{pace * (by_weights + by_attention) / peak_flops():.1%}")


if __name__ == "__main__":
    sys.exit(main())
