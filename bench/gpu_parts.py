"""The parts of `gpu.py`: each starts what it measures, and reports each result when it is known. Shared with tests/gpu.

A row is one thing that was measured. `held` says whether it kept the bound that a correct program keeps on any machine;
rows of speed have none.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from agym.dsl.model.plan import Plan
    from agym.dsl.model.recipe import DType, Lora
    from agym.runtime.backends.deepspeed import DeepSpeedLearner
    from agym.runtime.backends.vllm.sampler import VllmSampler
    from agym.runtime.protocols import TrainSequence
    from agym.runtime.workers.learner_worker import LearnerWorker

__all__ = ["PARTS", "SIZES", "Bench", "Part", "Size"]

MIB, GIB = 2**20, 2**30
PEAKS = {"H100 PCIe": 756e12, "H100 NVL": 835e12, "H100": 989e12, "H200": 989e12, "B200": 2250e12, "A100": 312e12}
"""Dense bf16 FLOP/s by a part of the device's name; the first that fits."""
_CLOSE = {"fp32": 1e-4, "bf16": 0.05}
"""Nats that log-probs of the same tokens may differ by on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and how much is done with it."""

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
    cycles: int = 20

    @property
    def context(self) -> int:
        return self.turns * (self.given + self.drawn) + 1


_MINI = Size(
    layers=2, hidden=128, heads=2, kv_heads=1, head_dim=64, intermediate=256, vocab=512,
    episodes=8, turns=2, given=16, drawn=16, micro_batch=512, times=1, cycles=3,
)  # fmt: skip
SIZES = {
    "whole": Size(),
    "quick": Size(episodes=64, turns=2, times=1),
    "small": replace(_MINI, layers=4, hidden=512, heads=8, kv_heads=4, intermediate=1024, vocab=8192),
    "mini": _MINI,
}
"""`whole` and `quick` have the shape of Qwen3-0.6B."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a part is given."""

    size: Size
    device: str
    """`cuda` or `cpu`."""
    folder: Path
    """Of all parts; the first that needs the model leaves it there for the others."""
    eager: bool
    """Without captured graphs."""
    say: Callable[[Mapping[str, object]], None]
    """Takes each row."""

    def tell(self, what: str, value: float | str, unit: str = "", *, held: bool | None = None) -> None:
        self.say({"what": what, "value": value, "unit": unit, "held": held})

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def dtype(self) -> DType:
        from agym.dsl.model.recipe import DType

        return DType.BF16 if self.on_gpu else DType.FP32

    # --- engines

    def model(self) -> Path:
        """A model folder with random weights."""
        folder = self.folder / "model"
        if not folder.exists():
            _make_model(self.size, self.device, folder)
        return folder

    def sampler(self, *, share: float = 0.4, lora: Lora | None = None) -> VllmSampler:
        from agym.runtime.backends.vllm.sampler import VllmSampler
        from agym.runtime.protocols import SamplerSettings

        started = perf_counter()
        sampler = VllmSampler(
            SamplerSettings(
                model=self.model(),
                dtype=self.dtype,
                context_tokens=self.size.context,
                slots=self.size.episodes,
                memory_share=share,
                # the engine's allocator for sleep and adapters together is what a recipe with LoRA runs
                shares_gpu=self.on_gpu,
                eager=self.eager or not self.on_gpu,
                lora=lora,
            )
        )
        self.tell("sampler started", perf_counter() - started, "s")
        return sampler

    def learner(self, *, zero: int = 2, lora: Lora | None = None, dtype: DType | None = None) -> DeepSpeedLearner:
        from agym.dsl.model.recipe import DType
        from agym.runtime.backends.deepspeed import DeepSpeedLearner
        from agym.runtime.protocols import LearnerSettings, OptimizerSettings

        settings = LearnerSettings(
            model=self.model(),
            dtype=dtype or self.dtype,
            # half precision has no stage 0, and one rank in fp32 needs none
            zero=zero if (dtype or self.dtype) is not DType.FP32 else 0,
            lora=lora,
            tokens_per_micro_batch=self.size.micro_batch,
            activation_checkpointing=self.on_gpu,
            fp32_head=self.on_gpu,
        )
        learner = DeepSpeedLearner(settings)
        learner.set_optimizer(OptimizerSettings(), fresh=False)
        return learner

    def worker(self, learner: DeepSpeedLearner) -> LearnerWorker:
        from agym.runtime.workers.build import PROBE_LIMITS
        from agym.runtime.workers.learner_worker import LearnerWorker

        worker = LearnerWorker(learner, lambda _: learner, PROBE_LIMITS[self.dtype])
        worker.offer_prompts([range(1, 25), range(25, 49)])
        return worker

    # --- the device

    def now(self) -> float:
        """The time once the device has done all that it was told."""
        import torch

        if self.on_gpu:
            torch.cuda.synchronize()
        return perf_counter()

    async def seconds(self, work: Callable[[], Awaitable[object]]) -> float:
        started = self.now()
        await work()
        return self.now() - started

    def used(self) -> int:
        """Bytes of the device that are taken, by any process; on a CPU those of this one."""
        import torch

        if not self.on_gpu:
            return _status("VmRSS")
        free, total = torch.cuda.mem_get_info()
        return int(total - free)

    @contextmanager
    def peak(self) -> Iterator[Callable[[], int]]:
        """Yield the most memory that was taken since: by tensors on a GPU, by the process on a CPU."""
        import torch

        # engines refer to themselves
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            yield lambda: int(torch.cuda.max_memory_allocated() - before)
        else:
            # Linux's own: the high-water mark begins anew
            Path("/proc/self/clear_refs").write_text("5")
            before = _status("VmRSS")
            yield lambda: _status("VmHWM") - before


def _status(name: str) -> int:
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _make_model(size: Size, device: str, folder: Path) -> None:
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
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    # a part that is ended while it writes leaves no half of a model
    partly = folder.with_name("partly")
    model.save_pretrained(partly)
    partly.rename(folder)


# --- episodes ------------------------------------------------------------------------------------------------------


def _opening(size: Size, episode: int, turn: int) -> list[int]:
    """What is said before a reply: different in each episode, the same for every player."""
    return [(7919 * episode + 104729 * turn + 31 * at) % size.vocab for at in range(size.given)]


async def _play(sampler: VllmSampler, size: Size, run: int) -> list[TrainSequence]:
    """Episodes as coroutines, as a run plays them."""
    from agym.runtime.protocols import SampleRequest, SamplingSettings

    async def episode(at: int) -> TrainSequence:
        ids: list[int] = []
        logprobs: list[float] = []
        for turn in range(size.turns):
            ids += _opening(size, at, turn)
            logprobs += [0.0] * size.given
            seed = at * size.turns + turn + run
            request = SampleRequest(prompt=ids, sampling=SamplingSettings(), max_tokens=size.drawn, seed=seed)
            reply = await sampler.sample(request)
            ids += reply.ids
            logprobs += reply.logprobs
        return _sequence(size, at, ids, logprobs)

    await sampler.forget()
    return list(await asyncio.gather(*(episode(at) for at in range(size.episodes))))


def _sequence(size: Size, at: int, ids: Sequence[int], logprobs: Sequence[float]) -> TrainSequence:
    from agym.runtime.protocols import TrainSequence

    mask = np.tile(np.arange(size.given + size.drawn) >= size.given, size.turns)
    return TrainSequence(
        ids=np.asarray(ids, np.int32),
        loss_mask=mask,
        advantages=np.where(mask, (-1.0) ** at, 0).astype(np.float32),
        old_logprobs=np.asarray(logprobs, np.float32),
    )


def _random_sequences(size: Size) -> list[TrainSequence]:
    """As long as episodes that are played; the learner's own log-probs stand in for a sampler's."""
    draws = np.random.default_rng(0)
    length = size.turns * (size.given + size.drawn)
    return [_sequence(size, at, draws.integers(0, size.vocab, length), [0.0] * length) for at in range(size.episodes)]


def _drive_bare(sampler: VllmSampler, size: Size, run: int) -> None:
    """The same requests to the same core, without a coroutine, a future or a record."""
    from agym.runtime.backends.vllm.sampler import _params, core_request
    from agym.runtime.protocols import SampleRequest, SamplingSettings

    core: Any = sampler._core
    core.reset_prefix_cache()
    texts: dict[str, list[int]] = {}

    def ask(at: int, turn: int, ids: list[int]) -> None:
        name = f"bare-{at}-{turn}"
        texts[name] = ids = ids + _opening(size, at, turn)
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


def _compare(bench: Bench, learner: DeepSpeedLearner, sequences: Sequence[TrainSequence]) -> None:
    """Say how far the learner's log-probs of what was drawn are from the sampler's."""
    own = learner.logprobs(sequences, 1.0)
    pairs = zip(sequences, own, strict=True)
    apart = np.concatenate([(mine - each.old_logprobs)[each.loss_mask] for each, mine in pairs]).astype(np.float64)  # type: ignore[operator]
    mean = float(np.abs(apart).mean())
    bench.tell("learner's log-probs less the sampler's, tokens", float(len(apart)))
    bench.tell("mean difference", mean, "nat", held=mean <= _CLOSE[bench.dtype])
    bench.tell("largest difference", float(np.abs(apart).max()), "nat")
    bench.tell("k3 estimate of the divergence", float((np.expm1(apart) - apart).mean()), "nat")


# --- parts ---------------------------------------------------------------------------------------------------------


async def _versions(bench: Bench) -> None:
    from importlib import import_module

    for name in ("torch", "transformers", "triton", "deepspeed", "vllm", "ray"):
        try:
            module = import_module(name)
        except Exception as error:
            # Triton has no place on a CPU; what else is missing ends the parts that need it
            bench.tell(name, f"{type(error).__name__}: {error}"[:200], held=None if name == "triton" else False)
        else:
            bench.tell(name, str(getattr(module, "__version__", "no version")))
    if bench.on_gpu:
        import torch

        free, total = torch.cuda.mem_get_info()
        bench.tell("memory", total / GIB, "GiB")
        bench.tell("free memory", free / GIB, "GiB")
        bench.tell("CUDA of PyTorch", str(torch.version.cuda))
        bench.tell("compute capability", ".".join(map(str, torch.cuda.get_device_capability())))


async def _sync(bench: Bench) -> None:
    """An engine starts, gets weights with proof, new weights after an update, and agrees with the learner."""
    from agym.runtime.protocols import UpdateSettings

    sampler, learner = bench.sampler(), bench.learner()
    worker, size = bench.worker(learner), bench.size
    try:
        times = []
        for version in range(size.times + 1):
            started = bench.now()
            proof = await sampler.load(worker.handover(version))
            times.append(bench.now() - started)
            bench.tell(f"sync {version}, proof included", times[-1], "s")
        bench.tell("tensors compared", float(proof.compared), held=proof.compared > 0)
        bench.tell("kinds of tensors not compared", float(len(proof.unproven)))
        bench.tell("probe's relative difference", proof.difference)
        sequences = await _play(sampler, size, 0)
        _compare(bench, learner, sequences)
        await sampler.sleep()
        metrics = learner.update(sequences, UpdateSettings(lr=1e-4))
        bench.tell("update", metrics.fault or "done", held=metrics.fault is None)
        # raises where the engine's log-probs are not those of the new weights
        await sampler.load(worker.handover(size.times + 1))
        _compare(bench, learner, await _play(sampler, size, 1))
    finally:
        await _close(sampler, learner)


async def _sleep(bench: Bench) -> None:
    """An engine gives its memory back and takes it again, many times, and is as it was."""
    sampler, learner = bench.sampler(), bench.learner()
    try:
        await sampler.load(bench.worker(learner).handover(0))
        text = range(10, 26)
        before, awake, asleep = await sampler.score(text), list[int](), list[int]()
        for cycle in range(bench.size.cycles):
            awake.append(bench.used())
            sleeping = await bench.seconds(sampler.sleep)
            asleep.append(bench.used())
            waking = await bench.seconds(sampler.forget)
            if cycle in {0, 1, bench.size.cycles - 1}:
                bench.tell(f"cycle {cycle}: sleeps", sleeping, "s")
                bench.tell(f"cycle {cycle}: wakes", waking, "s")
                bench.tell(f"cycle {cycle}: given back", (awake[-1] - asleep[-1]) / GIB, "GiB")
        gives = min(up - down for up, down in zip(awake, asleep, strict=True))
        bench.tell("given back at least", gives / GIB, "GiB", held=gives > 100 * MIB if bench.on_gpu else None)
        grown = max(asleep[1:]) - asleep[0]
        bench.tell(f"grown over {bench.size.cycles} cycles", grown / MIB, "MiB", held=grown < 64 * MIB)
        same = np.array_equal(await sampler.score(text), before)
        bench.tell("log-probs after it", "as before" if same else "not as before", held=same)
    finally:
        await _close(sampler, learner)


async def _update(bench: Bench) -> None:
    """Updates under ZeRO 1 to 3 without a sampler: pace, use of the device, memory compared with the plan."""
    import torch
    from agym.dsl.model.recipe import DType
    from agym.runtime.protocols import UpdateSettings

    sequences = _random_sequences(bench.size)
    tokens = sum(len(each.ids) for each in sequences)
    bench.tell("model", f"{_make_plan(bench, zero=2).budget.parameters:,} parameters")
    for zero in (1, 2, 3):
        with bench.peak() as peak:
            learner = bench.learner(zero=zero, dtype=DType.BF16)
            own = learner.logprobs(sequences, 1.0)
            sequences = [replace(each, old_logprobs=mine) for each, mine in zip(sequences, own, strict=True)]
            metrics = learner.update(sequences, UpdateSettings(lr=1e-6))
            times = [await bench.seconds(_as_awaited(learner, sequences)) for _ in range(bench.size.times)]
            taken = peak()
        held = metrics.fault is None and metrics.grad_norm > 0 and metrics.ratio_error < 0.2
        bench.tell(f"ZeRO {zero}: update", metrics.fault or "done", held=held)
        pace = tokens / median(times)
        bench.tell(f"ZeRO {zero}: pace, {metrics.micro_batches} micro-batches", pace, "tokens/s")
        _tell_mfu(bench, f"ZeRO {zero}", pace, tokens / len(sequences))
        planned = _planned_bytes(_make_plan(bench, zero=zero))
        bench.tell(f"ZeRO {zero}: peak memory", taken / GIB, "GiB")
        bench.tell(f"ZeRO {zero}: planned memory", planned / GIB, "GiB")
        bench.tell(f"ZeRO {zero}: peak over planned", taken / planned)
        learner.close()
        del learner
    torch.distributed.destroy_process_group()


async def _tree(bench: Bench) -> None:
    """Updates on groups that begin with the same prompt, which is computed once, and on plain rows of the same."""
    from agym.dsl.model.recipe import DType
    from agym.runtime.backends.checks.rows import RowKind
    from agym.runtime.protocols import UpdateSettings
    from tree import Work, make_groups

    prompt, after, groups = (1000, 80, 32) if bench.on_gpu else (40, 20, 2)
    learner = bench.learner(zero=2, dtype=DType.BF16)
    bench.tell("notes of the learner", "; ".join(learner.notes) or "none")
    kinds = {"plain": RowKind.PACKED, "tree": RowKind.TREE}
    logprobs, norms, seconds = dict[str, Any](), dict[str, float](), dict[str, list[float]]()
    sequences = list(make_groups(groups, prompt, after, bench.size.vocab))
    for name, kind in {"one by one": RowKind.ALONE, **kinds}.items():
        learner._reader.use(kind)
        logprobs[name] = np.concatenate(learner.logprobs(sequences, 1.0)).astype(np.float64)
    apart = {name: float(np.abs(logprobs[name] - logprobs["one by one"]).mean()) for name in kinds}
    for name, mean in apart.items():
        bench.tell(f"{name}: log-probs apart from sequences alone", mean, "nat", held=mean <= _CLOSE["bf16"])
    own = [each.astype(np.float32) for each in np.split(logprobs["plain"], len(sequences))]
    sequences = [replace(each, old_logprobs=mine) for each, mine in zip(sequences, own, strict=True)]
    for name, kind in kinds.items():
        learner._reader.use(kind)
        with bench.peak() as peak:
            # so small that the second update begins where the first did
            metrics = learner.update(sequences, UpdateSettings(lr=1e-12))
            bench.tell(f"{name}: peak memory of an update", peak() / GIB, "GiB")
        norms[name] = metrics.grad_norm
        seconds[name] = []
    for _ in range(bench.size.times):
        for name, kind in kinds.items():
            learner._reader.use(kind)
            seconds[name].append(await bench.seconds(_as_awaited(learner, sequences)))
    for name, each in seconds.items():
        bench.tell(f"{name}: update", median(each), "s")
    work = {name: Work.count(learner, sequences, learner._settings, name == "tree") for name in kinds}
    faster, allowed = median(seconds["plain"]) / median(seconds["tree"]), work["plain"].update / work["tree"].update
    bench.tell(f"{groups} groups of 8, {prompt} + {after} tokens: plain over tree", faster)
    bench.tell("what arithmetic allows", allowed)
    bench.tell("share of it (floor 0.7, aim 0.85)", faster / allowed)
    same = abs(norms["tree"] / norms["plain"] - 1)
    bench.tell("gradient norms apart, relative", same, held=same < 0.02)
    learner.close()


def _as_awaited(learner: DeepSpeedLearner, sequences: Sequence[TrainSequence]) -> Callable[[], Awaitable[None]]:
    from agym.runtime.protocols import UpdateSettings

    async def work() -> None:
        learner.update(sequences, UpdateSettings(lr=1e-6))

    return work


def _tell_mfu(bench: Bench, name: str, pace: float, length: float) -> None:
    """Model FLOPs, 6 N D, over the dense peak; then with causal attention's share. What is recomputed counts once."""
    import torch
    from agym.dsl.planning.memory import parameters

    if not bench.on_gpu:
        return
    peak = next((flops for part, flops in PEAKS.items() if part in torch.cuda.get_device_name()), float("nan"))
    size, shape = bench.size, _make_plan(bench, zero=2).shape
    assert shape is not None
    weights, attention = 6 * parameters(shape), 6 * size.layers * size.heads * size.head_dim * length
    bench.tell(f"{name}: MFU of {peak / 1e12:.0f} TFLOP/s", pace * weights / peak)
    bench.tell(f"{name}: MFU with attention", pace * (weights + attention) / peak)


async def _rollout(bench: Bench) -> None:
    """Episodes through the sampler compared with a bare loop on the same engine, with the same requests turn by
    turn."""
    size = bench.size
    tokens = size.episodes * size.turns * size.drawn
    sampler, learner = bench.sampler(), bench.learner()
    try:
        await sampler.load(bench.worker(learner).handover(0))
        await _play(sampler, size, -1)
        ours, bare = [], []
        # alternately, so that a device that slows down slows both
        for run in range(size.times):
            started = bench.now()
            _drive_bare(sampler, size, run)
            bare.append(tokens / (bench.now() - started))
            bench.tell("bare engine", bare[-1], "tokens/s")
            started = bench.now()
            await _play(sampler, size, run)
            ours.append(tokens / (bench.now() - started))
            bench.tell("sampler", ours[-1], "tokens/s")
        bench.tell("sampler over bare engine (floor 0.85, aim 0.95)", median(ours) / median(bare))
        bench.tell("memory taken", bench.used() / GIB, "GiB")
    finally:
        await _close(sampler, learner)


async def _ipc(bench: Bench) -> None:
    """An engine in another process takes weights from where they lie in this one, by CUDA IPC, and proves them.

    PyTorch sends a tensor of a GPU as a handle of its memory, and one of a CPU as a file in shared memory.
    """
    from torch import multiprocessing

    learner = bench.learner()
    worker, context = bench.worker(learner), multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = context.Process(target=_run_engine, args=(theirs, replace(bench, say=_ignore)), daemon=True)
    other.start()
    theirs.close()
    try:
        await asyncio.to_thread(_receive, ours, other)
        bench.tell("the other process", "has an engine")
        for version in range(bench.size.times + 1):
            update = worker.handover(version)
            held = list(update.tensors)
            size = sum(tensor.nbytes for _, tensor in held)
            started = bench.now()
            ours.send(replace(update, tensors=held))
            proof = await asyncio.to_thread(_receive, ours, other)
            spent = bench.now() - started
            bench.tell(f"sync {version}, proof included", spent, "s")
            bench.tell(f"sync {version}: seconds per GiB", spent / (size / GIB), "s")
        bench.tell("tensors compared", float(proof.compared), held=proof.compared > 0)
        bench.tell("probe's relative difference", proof.difference)
        ours.send(None)
        other.join(60)
    finally:
        other.kill()
        learner.close()


def _ignore(row: Mapping[str, object]) -> None:
    """The other process's rows would come twice."""


def _receive(pipe: Any, other: Any) -> Any:
    while not pipe.poll(1.0):
        if not other.is_alive():
            raise RuntimeError(f"the other process ended with {other.exitcode}")
    found = pipe.recv()
    if isinstance(found, str):
        raise RuntimeError(f"in the other process: {found}")
    return found


def _run_engine(pipe: Any, bench: Bench) -> None:
    async def serve() -> None:
        sampler = bench.sampler(share=0.3)
        pipe.send(True)
        while (update := pipe.recv()) is not None:
            pipe.send(await sampler.load(update))
            del update
        await sampler.close()

    try:
        asyncio.run(serve())
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
        raise


async def _ray(bench: Bench) -> None:
    """A run of twenty steps, sampler and learner as Ray actors on one device, which take turns."""
    recipe, run = bench.folder / "run.yaml", bench.folder / "run"
    recipe.write_text(_make_run_recipe(bench, run))
    command = [sys.executable, "-m", "agym", "run", str(recipe)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    reading = asyncio.create_task(_read_last(process.stdout))
    started, most = monotonic(), list[int]()
    while process.returncode is None:
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 1.0)
        most += [taken] if bench.on_gpu and (taken := _query_memory()) else []
    last = await reading
    rows = [json.loads(line) for path in run.rglob("metrics.jsonl") for line in path.read_text().splitlines()]
    ended = process.returncode == 0
    bench.tell("run", "ended well" if ended else f"exit {process.returncode}: {last}", held=ended)
    bench.tell("rows of steps", float(len(rows)), held=len(rows) >= _STEPS)
    bench.tell("the whole run", monotonic() - started, "s")
    if most:
        half = len(most) // 2
        bench.tell("most memory, first half", max(most[:half] or most) / GIB, "GiB")
        bench.tell("most memory, second half", max(most[half:]) / GIB, "GiB")


_STEPS = 20


def _make_run_recipe(bench: Bench, run: Path) -> str:
    recipe = {
        "agym": 1,
        "name": "gpu-bench",
        "extends": "quickstart",
        "output": str(run),
        "model": {"dtype": bench.dtype.value} if bench.on_gpu else {},
        "schedule": [
            {
                "stage": "imitate",
                "until": "step >= 5",
                "algorithm": {"use": "sft", "data": {"source": "expert", "limit": 64}},
            },
            {"stage": "explore", "turns": 8, "until": f"step >= {_STEPS - 5}"},
        ],
        "hardware": {"launcher": "ray", **(_hardware(bench) if bench.on_gpu else {})},
        # an agent this young never succeeds, but learns something nonetheless
        "reward": {"episode": "score - 0.1 * invalid_turns - 0.01 * sampled_tokens"},
        "guards": {"zero_std_max": None},
        "eval": None,
    }
    return json.dumps(recipe)


async def _read_last(stream: Any) -> str:
    """Draw all output, so that its writer never waits; return its end."""
    return str((await stream.read()).decode(errors="replace")[-800:])


def _query_memory() -> int:
    asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return int(found.stdout.split()[0]) * MIB if found.returncode == 0 else 0


async def _lora(bench: Bench) -> None:
    """Adapters arrive version by version; under captured graphs, where there are any."""
    from agym.dsl.model.recipe import Lora
    from agym.runtime.protocols import UpdateSettings

    lora = Lora(rank=8)
    sampler, learner = bench.sampler(lora=lora), bench.learner(lora=lora)
    worker = bench.worker(learner)
    try:
        for version in range(3):
            started = bench.now()
            proof = await sampler.load(worker.handover(version))
            bench.tell(f"version {version}, proof included", bench.now() - started, "s")
            bench.tell("matrices compared", float(proof.compared), held=proof.compared > 0)
            sequences = await _play(sampler, bench.size, version)
            _compare(bench, learner, sequences)
            await sampler.sleep()
            metrics = learner.update(sequences, UpdateSettings(lr=1e-3))
            bench.tell("update", metrics.fault or "done", held=metrics.fault is None)
    finally:
        await _close(sampler, learner)


async def _close(sampler: VllmSampler, learner: DeepSpeedLearner) -> None:
    import torch

    await sampler.close()
    learner.close()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


# --- the plan ------------------------------------------------------------------------------------------------------


def _hardware(bench: Bench) -> dict[str, object]:
    import torch

    if not bench.on_gpu:
        return {}
    return {"gpus_per_node": 1, "gpu_memory_gb": round(torch.cuda.mem_get_info()[1] / 1e9, 1)}


def _make_plan(bench: Bench, *, zero: int) -> Plan:
    """The plan of a recipe with this model, as `agym plan` makes it."""
    from agym.catalog import catalog
    from agym.dsl.compile import compile_recipe
    from agym.dsl.source import Source
    from agym.files import DiskLibrary

    size = bench.size
    shape = {name: getattr(size, name) for name in ("layers", "hidden", "heads", "kv_heads", "intermediate", "vocab")}
    recipe = {
        "agym": 1,
        "name": "gpu-bench",
        "model": {
            "path": str(bench.model()),
            "dtype": "bf16",
            "shape": {**shape, "head_dim": size.head_dim, "tie_embeddings": True, "qk_norm": True},
        },
        "environments": {"counter": {"use": "counter", "tasks": {"train": "train"}}},
        "agent": {"format": "plain", "tokens_per_turn": size.drawn, "context_tokens": size.context},
        "algorithm": {"use": "grpo", "group_size": 8, "groups_per_step": size.episodes // 8},
        "schedule": [{"stage": "only", "turns": size.turns, "until": "step >= 1"}],
        "hardware": {**_hardware(bench), "train": {"zero": zero, "tokens_per_micro_batch": size.micro_batch}},
    }
    source = Source(name="gpu-bench.yaml", text=json.dumps(recipe))
    compiled = compile_recipe(source, DiskLibrary(Path.cwd()), [], {}, catalog())
    plan = compiled.variants[0].plan if compiled.variants else None
    assert plan is not None, [each.message for each in compiled.diagnostics]
    return plan


def _planned_bytes(plan: Plan) -> int:
    """What is planned for a learner at work, without its process."""
    from agym.dsl.model.plan import Phase, Role

    items = [item for use in plan.budget.memory if use.role is Role.LEARNER for item in use.items]
    at_work = (Phase.RESIDENT, Phase.LEARNING)
    return sum(item.bytes for item in items if item.phase in at_work and item.what != "process")


# --- by information per minute -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the bench, in a process of its own."""

    work: Callable[[Bench], Awaitable[None]]
    says: str
    limit_s: float
    """After which it is ended."""


PARTS: Mapping[str, Part] = {
    "versions": Part(work=_versions, says="imports and versions", limit_s=120),
    "sync": Part(work=_sync, says="start, sync with proof, log-probs of learner and sampler", limit_s=240),
    "sleep": Part(work=_sleep, says="sleep and wake", limit_s=180),
    "update": Part(work=_update, says="ZeRO 1 to 3: pace, MFU, memory measured and planned", limit_s=180),
    "tree": Part(work=_tree, says="what episodes begin with in common, computed once", limit_s=120),
    "rollout": Part(work=_rollout, says="rollout over the bare engine", limit_s=180),
    "ipc": Part(work=_ipc, says="two processes on one device", limit_s=180),
    "ray": Part(work=_ray, says="colocated under Ray", limit_s=300),
    "lora": Part(work=_lora, says="LoRA, under graphs where there are any", limit_s=420),
}
"""In the order of information per minute."""
