"""Claim: a learner needs the memory that the plan says: its peak, per rank, is .75 to 1.05 of it.

A small model learns twice on each number of ranks at each ZeRO stage, in fp32 and bf16, on a CPU: every tensor's bytes
are counted as they are allocated and freed. The plan's figures are those of `agym plan` for the same sizes.

    python bench/memory.py [--ranks 1 2] [--dtypes fp32 bf16] [--stages 0 1 2 3] [--offload none optimizer all]
                           [--sequence-parallel 1] [--row-tokens 128]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from agym.dsl.model.model_sizes import make_shape
from agym.dsl.model.plan import Phase
from agym.dsl.model.recipe import DType, Init, Offload, TokenizerInit
from agym.dsl.planning.memory import Sizing, choose_zero, estimate_memory, width
from agym.runtime.protocols import LearnerSettings, TrainSequence, UpdateSettings
from engines import in_prepared_process

INIT = Init(layers=8, hidden=512, heads=8, kv_heads=4, tokenizer=TokenizerInit(vocab=2048))
_MB = 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--stages", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--offload", nargs="+", default=["none"], choices=list(Offload))
    parser.add_argument("--sequence-parallel", type=int, default=1)
    parser.add_argument("--row-tokens", type=int, default=128)
    parser.add_argument("--rank", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    in_prepared_process()
    if arguments.rank:
        return _be_rank(*arguments.rank)
    parts = itertools.product(map(DType, arguments.dtypes), arguments.stages, map(Offload, arguments.offload))
    cases = [Case(*part, arguments.sequence_parallel, arguments.row_tokens) for part in parts]
    ratios: list[float] = []
    print("| ranks | dtype | stage | offload | at rest, MB | planned | ratio | peak, MB | planned | ratio |")
    print("|" + "---|" * 10)
    with tempfile.TemporaryDirectory() as folder:
        _make_model(Path(folder) / "model")
        for ranks in arguments.ranks:
            possible = [case for case in cases if case.runs_as_written(ranks)]
            for case, (rest, peak) in zip(possible, _measure(Path(folder), ranks, possible), strict=True):
                planned_rest, planned_peak = _plan(ranks, case)
                ratios.append(peak / planned_peak)
                figures = f"{_row(rest, planned_rest)} | {_row(peak, planned_peak)}"
                print(f"| {ranks} | {case.dtype} | {case.stage} | {case.offload} | {figures} |", flush=True)
    print(f"peak over the plan: {min(ratios):.3f} to {max(ratios):.3f} (limits .75, 1.05)")
    return int(not 0.75 <= min(ratios) <= max(ratios) <= 1.05)


class Case(NamedTuple):
    """Settings of a learner."""

    dtype: DType
    stage: int
    offload: Offload
    divided: int
    """Ranks that divide a row between them."""
    row_tokens: int

    @property
    def width(self) -> int:
        return width(self.dtype, on_gpus=False)

    def runs_as_written(self, ranks: int) -> bool:
        least = {Offload.NONE: 0, Offload.OPTIMIZER: 1, Offload.ALL: 3}[self.offload]
        if ranks % self.divided:
            return False
        return self.stage >= least and choose_zero(self.stage, self.width, self.offload, ranks) == self.stage


def _row(measured: float, planned: float) -> str:
    return f"{measured / _MB:.1f} | {planned / _MB:.1f} | {measured / planned:.3f}"


# --- as planned ----------------------------------------------------------------------------------------------------


def _plan(ranks: int, case: Case) -> tuple[int, int]:
    """Bytes of one rank: at rest, and at the peak of an update."""
    uses = estimate_memory(
        Sizing(
            shape=make_shape(INIT),
            critic=None,
            lora=None,
            reference=False,
            teacher=None,
            width=case.width,
            zero=case.stage,
            offload=case.offload,
            checkpointing=False,
            ranks=ranks,
            sequence_parallel=case.divided,
            ranks_per_node=1,
            tensor_parallel=1,
            engines_per_node=1,
            colocated=True,
            host=True,
            inline=True,
            learns=True,
            samples=False,
            micro_batch_tokens=case.row_tokens,
            context_tokens=case.row_tokens,
            slots_per_engine=1,
            cache_bytes=None,
            capacity=None,
            memory_share=0.5,
        )
    )
    held = Counter[Phase]()
    for item in (item for use in uses for item in use.items if item.what != "process"):
        held[item.phase] += item.bytes
    rest = held.pop(Phase.RESIDENT)
    return rest, rest + max(held.values())


# --- as measured ---------------------------------------------------------------------------------------------------


def _make_model(folder: Path) -> None:
    from agym.runtime.backends.hf_models import make_model, make_tokenizer

    draws = np.random.Generator(np.random.PCG64(0))
    texts = ["".join(map(chr, draws.integers(97, 123, 2000))) for _ in range(20)]
    make_model(INIT, make_tokenizer(INIT.tokenizer, texts), 0, folder)


def _measure(folder: Path, ranks: int, cases: Sequence[Case]) -> list[tuple[int, int]]:
    """Bytes of the rank that has most, for each case: at rest after two updates, and at the peak of the second."""
    words = [sys.executable, __file__, "--rank", str(folder / "model"), str(folder / f"store-{ranks}"), str(ranks)]
    written = [":".join(map(str, case)) for case in cases]
    started = [
        subprocess.Popen([*words, str(rank), *written], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    ended = [(process, *process.communicate(timeout=600)) for process in started]
    for process, _, trouble in ended:
        if process.returncode:
            raise RuntimeError(trouble)
    found = [[json.loads(line) for line in out.splitlines() if line.startswith("[")] for _, out, _ in ended]
    return [(max(each[0] for each in row), max(each[1] for each in row)) for row in zip(*found, strict=True)]


def _be_rank(model: str, store: str, ranks: str, rank: str, *cases: str) -> int:
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    kept = torch.distributed.FileStore(store, int(ranks))
    torch.distributed.init_process_group("gloo", store=kept, rank=int(rank), world_size=int(ranks))
    for dtype, stage, offload, divided, tokens in (case.split(":") for case in cases):
        settings = LearnerSettings(
            model=Path(model),
            dtype=DType(dtype),
            zero=int(stage),
            offload=Offload(offload),
            tokens_per_micro_batch=int(tokens),
            sequence_parallel=int(divided),
        )
        print(json.dumps(_profile(settings, int(rank))), flush=True)
        gc.collect()
    return 0


def _profile(settings: LearnerSettings, rank: int) -> tuple[int, int]:
    import torch.distributed
    from agym.runtime.backends.deepspeed import DeepSpeedLearner
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        learner = DeepSpeedLearner(settings)
        learner.update(_sequences(rank, settings), UpdateSettings(lr=1e-4))
        with record_function("second"):
            learner.update(_sequences(rank, settings), UpdateSettings(lr=1e-4))
        # what a collective still holds is released by the next
        torch.distributed.barrier()
        gc.collect()
    learner.close()
    return _count(profiled.profiler.kineto_results.events())


def _count(events: Sequence[Any]) -> tuple[int, int]:
    """Bytes that are allocated at the end, and at most since the mark."""
    since = next(event.start_ns() for event in events if event.name() == "second")
    held = peak = 0
    for event in sorted((each for each in events if each.name() == "[memory]"), key=lambda each: each.start_ns()):
        held += event.nbytes()
        peak = max(peak, held) if event.start_ns() >= since else peak
    return held, peak


def _sequences(rank: int, settings: LearnerSettings) -> list[TrainSequence]:
    draws = np.random.Generator(np.random.PCG64(rank // settings.sequence_parallel))
    length = settings.tokens_per_micro_batch // 2
    return [_sequence(draws.integers(0, 200, length).astype(np.int32)) for _ in range(4)]


def _sequence(ids: np.ndarray) -> TrainSequence:
    ones = np.ones(len(ids), np.float32)
    return TrainSequence(ids=ids, loss_mask=np.arange(len(ids)) > 0, advantages=ones, old_logprobs=-ones)


if __name__ == "__main__":
    sys.exit(main())
