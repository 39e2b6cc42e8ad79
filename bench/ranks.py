"""Several ranks of a learner against one: weights, losses and norms, and the memory of a start.

python bench/ranks.py            a table of ranks, ranks that divide each row between them, and ZeRO stages
python bench/ranks.py --memory   peak memory of a rank that starts, divided and whole
"""

from __future__ import annotations

import gc
import math
import os
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import numpy as np
import torch
import torch.distributed
from agym.dsl.model.recipe import Init, TokenizerInit
from agym.runtime.backends.checks.rows import RowKind
from agym.runtime.backends.critic import DeepSpeedCritic
from agym.runtime.backends.deepspeed import DeepSpeedLearner
from agym.runtime.backends.hf_models import make_model, make_tokenizer
from agym.runtime.backends.policy import FrozenPolicy, Policy, load_causal
from agym.runtime.errors import RunError
from agym.runtime.learning.packing import PackedRow, pack
from agym.runtime.protocols import (
    LearnerSettings,
    ProbeLimits,
    TrainSequence,
    UpdateLimits,
    UpdateMetrics,
    UpdateSettings,
    ValueMetrics,
    ValueSettings,
)
from agym.runtime.workers.division import divide
from agym.runtime.workers.learner_worker import LearnerWorker, name_lost_rank
from engines import in_prepared_process
from gang import Gang
from torch import Tensor

__all__ = [
    "Outcome",
    "divide_rows",
    "draw_batch",
    "make_model_folder",
    "measure_start",
    "read",
    "resume",
    "score",
    "train",
    "wait",
]

STEP = UpdateSettings(lr=1e-3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one rank reports of a training."""

    metrics: list[UpdateMetrics]
    refused: list[UpdateMetrics]
    weights: dict[str, Any]
    """After the updates; numpy."""
    digests: list[dict[str, int]]
    """After the updates, and after each that was refused."""
    logprobs: list[Any]
    reference: list[Any]
    critic: list[ValueMetrics]
    values: list[Any]
    probe: int
    """Sequences of text that prove a sync."""
    notes: list[str]


def draw_batch(seed: int = 0, count: int = 13, vocab: int = 250) -> list[TrainSequence]:
    rng = np.random.default_rng(seed)
    return [_draw_sequence(rng, int(length), vocab) for length in rng.integers(5, 120, count)]


def _draw_sequence(rng: np.random.Generator, length: int, vocab: int) -> TrainSequence:
    loss_mask = rng.random(length) < 0.3
    loss_mask[0], loss_mask[-1] = False, True
    return TrainSequence(
        ids=rng.integers(0, vocab, length).astype(np.int32),
        loss_mask=loss_mask,
        advantages=rng.normal(size=length).astype(np.float32),
        old_logprobs=(-5.7 + 0.1 * rng.normal(size=length)).astype(np.float32),
        values=np.zeros(length, np.float32),
        value_targets=rng.normal(size=length).astype(np.float32),
    )


def _poison(batch: Sequence[TrainSequence]) -> list[TrainSequence]:
    """Spoil one sequence, and so one rank's share of the update."""
    return [*batch[:-1], replace(batch[-1], advantages=np.full(len(batch[-1].ids), np.nan, np.float32))]


def open_worker(settings: LearnerSettings) -> LearnerWorker:
    """Build a rank's worker around real engines, as `build` does for a plan."""
    learner = DeepSpeedLearner(settings)
    return LearnerWorker(
        learner,
        lambda folder: FrozenPolicy(settings, learner.device) if settings.lora is None else learner.reference(folder),
        ProbeLimits(floor=1e-4, ceiling=1e-3),
        lambda: DeepSpeedCritic(settings, learner.weights()),
        lambda folder: DeepSpeedLearner(settings, folder),
    )


def train(rank: int, ranks: int, settings: LearnerSettings, count: int, folder: Path | None) -> Outcome:
    """Train for three updates, refuse two, and ask for everything else that a worker does on all ranks."""
    worker = open_worker(settings)
    first, *others = [draw_batch(seed, count) for seed in range(3)]
    share = _share(first, rank, ranks, settings)
    worker.offer_prompts([[5, 6, 7, 8]])
    reference = worker.logprobs(share, 1.0, reference=True)
    metrics = [worker.update(_share(each, rank, ranks, settings), STEP) for each in (first, *others)]
    digests = [_digests(worker)]
    refused = []
    for batch, update in ((first, LIMITED), (_poison(first), STEP)):
        refused.append(worker.update(_share(batch, rank, ranks, settings), update))
        digests.append(_digests(worker))
    weights = {name: tensor.cpu().numpy().copy() for name, tensor in worker.learner.weights()}
    critic = [worker.update_critic(share, ValueSettings(lr=1e-3)) for _ in range(2)]
    handover = worker.handover(3)
    sent = {name for name, _ in handover.tensors}
    assert sent == set(handover.checksums), "every tensor has a checksum, and no other"
    if folder is not None:
        worker.save(folder / "saved")
        worker.export(folder / "exported")
    outcome = Outcome(
        metrics=metrics,
        refused=refused,
        weights=weights if rank == 0 else {},
        digests=digests,
        logprobs=worker.logprobs(share, 1.0, reference=False),
        reference=reference,
        critic=critic,
        values=worker.values(share),
        probe=len(handover.probe.sequences),
        notes=worker.learner.notes,
    )
    worker.close()
    return outcome


LIMITED = UpdateSettings(lr=1e-3, limits=UpdateLimits(grad_norm=1e-6))


def _share(batch: Sequence[TrainSequence], rank: int, ranks: int, settings: LearnerSettings) -> list[TrainSequence]:
    size = settings.sequence_parallel
    return [batch[at] for at in divide(batch, ranks // size)[rank // size]]


def _digests(worker: LearnerWorker) -> dict[str, int]:
    return {name: each.digest for name, each in worker.learner.checksums().items()}


def resume(rank: int, ranks: int, settings: LearnerSettings, saved: Path, again: Path) -> UpdateMetrics:
    """Load what other ranks saved, save it again, and take the next step."""
    worker = open_worker(settings)
    worker.load(saved)
    worker.save(again)
    metrics = worker.update(_share(draw_batch(3), rank, ranks, settings), STEP)
    worker.save(again.with_name(f"{again.name}-next"))
    worker.close()
    return metrics


def score(rank: int, ranks: int, settings: LearnerSettings) -> list[tuple[int, int]]:
    """Return, of the policy and of its reference, how many elements this rank keeps, of how many."""
    learner = DeepSpeedLearner(settings)
    networks = [learner._policy, FrozenPolicy(settings, learner.device)._policy]
    return [
        (
            sum(each.ds_tensor.numel() for each in network.parameters()),
            sum(each.ds_numel for each in network.parameters()),
        )
        for network in networks
    ]


def divide_rows(rank: int, ranks: int, models: Mapping[str, Path]) -> dict[str, tuple[float, float, str]]:
    """Return, for each model whose rows all ranks divide, how far its log-probs and gradients are from those of whole
    rows, or why it is refused."""
    torch.manual_seed(0)
    return {name: _divide_rows(ranks, model) for name, model in models.items()}


def _divide_rows(ranks: int, model: Path) -> tuple[float, float, str]:
    policy = Policy(LearnerSettings(model=model, sequence_parallel=ranks)).eval()
    try:
        policy.check(lambda work: work())
    except RunError as error:
        return math.inf, math.inf, str(error)
    rows = pack(draw_batch(count=5, vocab=policy.vocab), 150, torch.device("cpu"))
    divided, own = _read(policy, rows)
    policy.rows.use(RowKind.PACKED)
    whole, gradients = _read(policy, rows)
    for gradient in own:
        torch.distributed.all_reduce(gradient)
    pairs = list(zip(own, gradients, strict=True))
    return (
        max(float((one - other).abs().max()) for one, other in zip(divided, whole, strict=True)),
        max(float((one - other).norm() / (1e-6 + other.norm())) for one, other in pairs),
        "",
    )


def _read(policy: Policy, rows: Sequence[PackedRow]) -> tuple[list[Tensor], list[Tensor]]:
    """Return log-probs of rows and the gradients of some sum of theirs."""
    policy.zero_grad()
    logprobs = [policy(row, 1.0)[0] for row in rows]
    sum((each * row.advantages_N).sum() for each, row in zip(logprobs, rows, strict=True)).backward()
    parameters = policy.parameters()
    return logprobs, [torch.zeros_like(each) if each.grad is None else each.grad.clone() for each in parameters]


def wait(rank: int, ranks: int, seconds: float | None) -> None:
    """Meet at a barrier to which all but the first come late, or never."""
    if rank and seconds is None:
        os._exit(1)
    time.sleep(seconds or 0 if rank else 0)
    with name_lost_rank():
        torch.distributed.barrier()


def measure_start(rank: int, ranks: int, settings: LearnerSettings) -> dict[str, float]:
    """Return the peak memory of this rank in MB, above what it had: its own, and pages of files that are mapped, which
    the system takes back where it needs them; for the model, then for a reference that scores."""
    with _watch_memory() as model:
        causal = load_causal(settings)
    del causal
    gc.collect()
    with _watch_memory() as reference:
        scorer = FrozenPolicy(settings, torch.device("cpu"))
        scorer.logprobs(_share(draw_batch(), rank, ranks, settings), 1.0)
    watched = {"model": model, "reference": reference}
    return {f"{what}, {name}": mb for what, peaks in watched.items() for name, mb in peaks.items()}


@contextmanager
def _watch_memory() -> Iterator[dict[str, float]]:
    """Yield what is then filled: the peak while in the context, above what there was, and what is left at its end."""
    found: dict[str, float] = {}
    before, ended = _read_memory(), Event()
    peaks = dict(before)

    def watch() -> None:
        while not ended.wait(0.001):
            for name, mb in _read_memory().items():
                peaks[name] = max(peaks[name], mb)

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()
    found |= {name: mb - before[name] for name, mb in peaks.items()}
    found["own at rest"] = _read_memory()["own"] - before["own"]


_KINDS = {"RssAnon:": "own", "RssFile:": "mapped"}


def _read_memory() -> dict[str, float]:
    words = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    return {_KINDS[each[0]]: int(each[1]) / 1e3 for each in words if each[0] in _KINDS}


def read(rank: int, ranks: int, settings: LearnerSettings) -> dict[str, Any]:
    """Return the weights of a learner that has just been started; of the first rank, numpy."""
    learner = DeepSpeedLearner(settings)
    found = {name: tensor.float().cpu().numpy().copy() for name, tensor in learner.weights()}
    learner.close()
    return found if rank == 0 else {}


def main() -> None:
    arguments = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    arguments.add_argument("--memory", action="store_true")
    show = _show_memory if arguments.parse_args().memory else _show_differences
    in_prepared_process()
    with TemporaryDirectory() as folder, Gang(4, timeout_s=120.0) as gang:
        show(gang, Path(folder))


def _show_differences(gang: Gang, folder: Path) -> None:
    # four ranks need at least four heads to share
    models = {heads: make_model_folder(folder / str(heads), hidden=64, layers=3, heads=heads) for heads in (2, 4)}
    all_settings = {heads: LearnerSettings(model=model, tokens_per_micro_batch=150) for heads, model in models.items()}
    all_alone = {heads: gang.run(1, train, settings, 13, None)[0] for heads, settings in all_settings.items()}
    print("ranks  a row  ZeRO  weights  above     loss     norm  critic's loss  seconds")
    for (ranks, size), zero in product(_DIVISIONS, (0, 1, 2, 3)):
        settings, alone = all_settings[max(size, 2)], all_alone[max(size, 2)]
        start = time.perf_counter()
        found, *others = gang.run(ranks, train, replace(settings, zero=zero, sequence_parallel=size), 13, None)
        for each in (found, *others):
            assert each.metrics == found.metrics, "all ranks have the same metrics"
            assert each.digests == [found.digests[0]] * 3, "a refused update leaves all ranks bit-identical"
        seconds = time.perf_counter() - start
        apart = [abs(found.weights[name] - each) for name, each in alone.weights.items()]
        weights, above = max(float(each.max()) for each in apart), sum(int((each > _LIMIT).sum()) for each in apart)
        pairs = list(zip(alone.metrics, found.metrics, strict=True))
        loss = max(abs(one.loss - other.loss) for one, other in pairs)
        norm = max(abs(one.grad_norm - other.grad_norm) for one, other in pairs)
        critic = max(abs(one.loss - other.loss) for one, other in zip(alone.critic, found.critic, strict=True))
        print(
            f"{ranks:5}  {size:5}  {zero:4}  {weights:7.1e}  {above:5}  {loss:7.1e}  {norm:7.1e}  {critic:13.1e}  "
            f"{seconds:7.1f}",
            flush=True,
        )


_LIMIT = 1e-5
"""Weights further apart are counted: where a gradient nearly cancels, Adam divides its rounding by its size."""
_DIVISIONS = ((1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4))
"""Ranks, and those of them that divide a row."""


def _show_memory(gang: Gang, folder: Path) -> None:
    model = make_model_folder(folder, hidden=768, layers=12)
    size = sum(file.stat().st_size for file in model.glob("*.safetensors")) / 1e6
    print(f"model of {size:.0f} MB; MB of the rank that takes most")
    for ranks, zero in ((1, 3), (2, 2), (2, 3), (4, 3)):
        found = gang.run(ranks, measure_start, LearnerSettings(model=model, zero=zero, tokens_per_micro_batch=150))
        peaks = {name: max(each[name] for each in found) for name in found[0]}
        print(
            f"{ranks} ranks, ZeRO {zero}: " + ", ".join(f"{name} {peak:.0f}" for name, peak in peaks.items()),
            flush=True,
        )


def make_model_folder(folder: Path, hidden: int, layers: int, heads: int = 2) -> Path:
    tokenizer = make_tokenizer(TokenizerInit(vocab=300), ["some words to begin with"])
    sizes = Init(layers=layers, hidden=hidden, heads=heads, kv_heads=heads // 2, tie_embeddings=True)
    make_model(sizes, tokenizer, 0, folder)
    return folder


if __name__ == "__main__":
    main()
