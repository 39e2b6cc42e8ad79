"""Claim: the proof of a weight sync finds every planted fault, and lets every healthy sync pass.

Healthy: a learner's weights are moved, all of them or some, by steps of many sizes, and given to one vLLM engine again
and again, over precisions, full weights and LoRA, layers kept plainly and layers packed for the processor; the probe's
text changes every time. Tiny random models, 10,000 syncs; or the model of a folder, 300, with text of `docs/`. The
state folder says how far it is, so a run goes on where it was stopped. Faults: each of the table is planted on the way
to the engine and inside it, at the first sync of an engine and at a later one; a fault in a packed layer of which only
a column shows may take until that column's turn. Prints misses and ends with 1 if there are any.

    python bench/weight_sync.py [--model FOLDER] [--syncs N] [--seconds S] [--state FOLDER] [--faults] [--cells PART]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from agym.dsl.model.recipe import DType, Init, Lora, TokenizerInit
from agym.runtime.backends.hf_models import ModelSource, load_tokenizer, make_model, make_tokenizer
from agym.runtime.protocols import LearnerSettings, NamedTensors, SamplerSettings, SyncError, SyncProof, WeightUpdate
from agym.runtime.workers.build import PROBE_LIMITS
from agym.runtime.workers.learner_worker import LearnerWorker
from engines import in_prepared_process
from torch import Tensor

__all__ = ["FAULTS", "Pair", "plant"]

Weights = dict[str, Tensor]
_LORA = Lora(rank=4, alpha=16, targets=("q_proj", "v_proj", "o_proj", "up_proj", "down_proj"))
_VOCAB = 300
_EVERY = 25
"""Syncs between two writes of the state."""


# --- faults --------------------------------------------------------------------------------------------------------


def _stale_layer(now: Weights, before: Weights, draw: random.Random) -> Weights:
    layer = f".{draw.choice(_layers(now))}."
    return {name: before[name] if layer in name else tensor for name, tensor in now.items()}


def _layers(weights: Weights) -> list[str]:
    return sorted({found[1] for name in weights if (found := re.search(r"\.(\d+)\.", name))})


def _old_tensor(now: Weights, before: Weights, draw: random.Random) -> Weights:
    name = draw.choice([name for name in now if not torch.equal(now[name], before[name])])
    return now | {name: before[name]}


def _transposed(now: Weights, before: Weights, draw: random.Random) -> Weights:
    return _turn(now, [name for name, each in now.items() if each.ndim == 2], draw)


def _square_transposed(now: Weights, before: Weights, draw: random.Random) -> Weights:
    return _turn(now, [name for name, each in now.items() if each.ndim == 2 and each.shape[0] == each.shape[1]], draw)


def _turn(now: Weights, names: Sequence[str], draw: random.Random) -> Weights:
    if not names:
        return now
    name = draw.choice(names)
    return now | {name: now[name].T.contiguous().view(now[name].shape)}


def _swapped(now: Weights, before: Weights, draw: random.Random) -> Weights:
    name = draw.choice([name for name in now if _twins(now, name)])
    other = draw.choice(_twins(now, name))
    return now | {name: now[other], other: now[name]}


def _twins(weights: Weights, name: str) -> list[str]:
    mine = weights[name]
    return [
        other
        for other, each in weights.items()
        if other != name and each.shape == mine.shape and not torch.equal(each, mine)
    ]


def _flipped_bit(now: Weights, before: Weights, draw: random.Random) -> Weights:
    name = draw.choice(list(now))
    flipped = now[name].clone()
    data = flipped.view(-1).view(torch.uint8)
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return now | {name: flipped}


def _cast(now: Weights, before: Weights, draw: random.Random) -> Weights:
    coarse = {torch.float32: torch.bfloat16, torch.bfloat16: torch.float8_e4m3fn}
    casts = {name: each.to(coarse[each.dtype]).to(each.dtype) for name, each in now.items()}
    name = draw.choice([name for name in now if not torch.equal(casts[name], now[name])])
    return now | {name: casts[name]}


def _half(now: Weights, before: Weights, draw: random.Random) -> Weights:
    return dict(list(now.items())[: len(now) // 2])


def _missing(now: Weights, before: Weights, draw: random.Random) -> Weights:
    gone = draw.choice(list(now))
    return {name: tensor for name, tensor in now.items() if name != gone}


def _missing_adapter(now: Weights, before: Weights, draw: random.Random) -> Weights:
    layers = sorted({name.rpartition(".")[0] for name in now if ".lora_" in name})
    gone = draw.choice(layers) if layers else None
    return {name: tensor for name, tensor in now.items() if name.rpartition(".")[0] != gone}


def _tied_left(now: Weights, before: Weights, draw: random.Random) -> Weights:
    return now | {name: before[name] for name in now if name == "lm_head.weight"}


FAULTS: dict[str, Callable[[Weights, Weights, random.Random], Weights]] = {
    "one layer stale": _stale_layer,
    "one tensor of the version before": _old_tensor,
    "one tensor transposed": _transposed,
    "a square tensor transposed": _square_transposed,
    "two tensors of one shape swapped": _swapped,
    "one bit flipped": _flipped_bit,
    "one tensor cast through a coarser precision": _cast,
    "half of the tensors": _half,
    "one tensor missing": _missing,
    "one adapter missing": _missing_adapter,
    "a tied output layer left behind": _tied_left,
}
"""What arrives, or what an engine takes in, instead of new weights; the same weights where a fault has no place."""


# --- an engine and a learner ---------------------------------------------------------------------------------------


class Pair:
    """A learner and a vLLM engine, in which a fault can be planted."""

    def __init__(self, folder: Path, dtype: DType, lora: Lora | None, texts: Sequence[Sequence[int]]) -> None:
        from agym.runtime.backends.checks.checksums import Receipt
        from agym.runtime.backends.deepspeed import DeepSpeedLearner
        from agym.runtime.backends.vllm.sampler import VllmSampler

        class Planted(VllmSampler):
            fault: Callable[[Weights], Weights] | None = None

            async def load(self, update: WeightUpdate) -> SyncProof:
                fault, pass_on = self.fault, Receipt.pass_on

                def plant(receipt: Receipt, tensors: NamedTensors) -> Iterator[tuple[str, Tensor]]:
                    passed = pass_on(receipt, tensors)
                    yield from passed if fault is None else fault(dict(passed)).items()

                with patch.object(Receipt, "pass_on", plant):
                    return await super().load(update)

        zero = 0 if dtype is DType.FP32 else 1
        self.learner = DeepSpeedLearner(LearnerSettings(model=folder, dtype=dtype, lora=lora, zero=zero))
        self.sampler: Any = Planted(SamplerSettings(model=folder, dtype=dtype, lora=lora, context_tokens=128, slots=4))
        self.worker = LearnerWorker(self.learner, lambda _: self.learner, PROBE_LIMITS[dtype])
        self.texts = texts
        self._version = 0

    def move(self, draw: random.Random) -> None:
        """Change weights as an update might: all or some, by a little or a lot."""
        chosen, scale = draw.random(), 10 ** draw.uniform(-6, -2)
        generator = torch.Generator().manual_seed(draw.getrandbits(32))
        with torch.no_grad():
            for _, tensor in self.learner.weights():
                if draw.random() < chosen:
                    size = tensor.float().std(correction=0) + 1e-3
                    tensor += scale * size * torch.randn(tensor.shape, generator=generator)

    def update(self, draw: random.Random) -> WeightUpdate:
        self.worker.offer_prompts(draw.sample(list(self.texts), 2))
        self._version += 1
        return self.worker.handover(self._version)

    def weights(self) -> Weights:
        return {name: tensor.clone() for name, tensor in self.learner.weights()}

    def forget(self) -> None:
        """Take the next sync for the engine's first."""
        self.sampler._core.collective_rpc(lambda worker: vars(worker).pop("agym_intake", None))
        self.sampler._probe_limit = None

    async def close(self) -> None:
        await self.sampler.close()
        self.learner.close()


async def plant(pair: Pair, name: str, *, inside: bool, seed: int) -> int | None:
    """Plant a fault on the way to the engine or inside it; return the syncs until it was found, 0 if it never was, None
    where it has no place. The engine is given the right weights afterwards."""
    draw, before = random.Random(seed), pair.weights()
    pair.move(draw)
    found: int | None = 0
    for attempt in range(1, 1 + (_turns(before) if inside else 1)):
        update = pair.update(random.Random(seed))
        now = pair.weights()
        wrong = FAULTS[name](now, before, random.Random(seed))
        if wrong.keys() == now.keys() and all(torch.equal(_bits(wrong[each]), _bits(now[each])) for each in now):
            return None
        pair.sampler.fault = (lambda _, wrong=wrong: wrong) if inside else None
        tensors = update.tensors if inside else list(wrong.items())
        try:
            await pair.sampler.load(replace(update, tensors=tensors))
        except SyncError:
            found = attempt
            break
        finally:
            pair.sampler.fault = None
    await pair.sampler.load(pair.update(draw))
    return found


def _turns(weights: Weights) -> int:
    """Syncs after which every column of a packed layer was read."""
    return 1 + max(-(-tensor.shape[-1] // 16) for tensor in weights.values())


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


# --- runs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is synced."""

    name: str
    folder: Path
    dtype: DType
    lora: Lora | None
    texts: Sequence[Sequence[int]]
    lively: bool
    """Move random weights first, as otherwise no tensor matters to a log-prob."""

    def open(self) -> Pair:
        pair = Pair(self.folder, self.dtype, self.lora, self.texts)
        if self.lively:
            generator = torch.Generator().manual_seed(0)
            with torch.no_grad():
                for _, tensor in pair.learner.weights():
                    tensor += 0.1 * torch.randn(tensor.shape, generator=generator)
        return pair


@dataclass(slots=True)
class Tally:
    """How far a cell is."""

    done: int = 0
    seconds: float = 0.0
    largest: float = 0.0
    """Mean relative difference of log-probs."""
    compared: int = 0
    failed: list[str] = field(default_factory=list)


def tiny_cells(folder: Path) -> list[Cell]:
    draw = random.Random(0)
    tokenizer = make_tokenizer(TokenizerInit(vocab=_VOCAB), ["".join(draw.choices("abcdefg ", k=3000))])
    texts = [[draw.randrange(_VOCAB) for _ in range(49)] for _ in range(100)]
    for hidden in (64, 192):
        sizes = Init(layers=3, hidden=hidden, heads=2, kv_heads=1, tie_embeddings=True)
        make_model(sizes, tokenizer, 0, folder / str(hidden), positions=256)
    kinds = {64: "plain", 192: "packed"}
    return [
        Cell(
            name=f"{kind}-{dtype.value}-{'lora' if lora else 'full'}",
            folder=folder / str(hidden),
            dtype=dtype,
            lora=lora,
            texts=texts,
            lively=True,
        )
        for hidden, kind in kinds.items()
        for dtype in (DType.FP32, DType.BF16)
        for lora in (None, _LORA)
    ]


def cells_of(model: Path) -> list[Cell]:
    tokenizer = load_tokenizer(ModelSource(path=str(model)))
    docs = Path(__file__).resolve().parent.parent / "docs"
    ids = tokenizer.encode("\n".join(page.read_text() for page in sorted(docs.glob("*.md"))))
    texts = [ids[at : at + 49] for at in range(0, len(ids) - 49, 49)]
    return [
        Cell(
            name=f"{model.name}-{dtype.value}-{'lora' if lora else 'full'}",
            folder=model,
            dtype=dtype,
            lora=lora,
            texts=texts,
            lively=False,
        )
        for dtype in (DType.FP32, DType.BF16)
        for lora in (None, _LORA)
    ]


async def sync_healthily(cell: Cell, target: int, state: Path, stop_at: float) -> Tally:
    file = state / f"{cell.name}.json"
    tally = Tally(**json.loads(file.read_text())) if file.exists() else Tally()
    if tally.done >= target or time.monotonic() >= stop_at:
        return tally
    pair = cell.open()
    while tally.done < target and time.monotonic() < stop_at:
        draw, started = random.Random(f"{cell.name} {tally.done}"), time.monotonic()
        pair.move(draw)
        try:
            proof = await pair.sampler.load(pair.update(draw))
            tally.largest, tally.compared = max(tally.largest, proof.difference), proof.compared
        except SyncError as error:
            tally.failed.append(f"{tally.done}: {error}")
        tally.done += 1
        tally.seconds += time.monotonic() - started
        if tally.done % _EVERY == 0 or tally.done == target:
            _write(file, tally)
    _write(file, tally)
    await pair.close()
    return tally


def _write(file: Path, tally: Tally) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(tally)))
    fresh.replace(file)


async def find_faults(cell: Cell, seeds: int) -> list[str]:
    """Plant every fault everywhere; return what was missed."""
    pair, missed, planted, slowest = cell.open(), list[str](), 0, 0
    await pair.sampler.load(pair.update(random.Random(0)))
    for name in FAULTS:
        for inside in (False, True):
            for first in (False, True):
                for seed in range(seeds):
                    if first:
                        pair.forget()
                    found = await plant(pair, name, inside=inside, seed=seed)
                    planted, slowest = planted + (found is not None), max(slowest, found or 0)
                    if found == 0:
                        missed.append(f"{cell.name}: {name}, inside {inside}, first sync {first}, seed {seed}")
    await pair.close()
    print(f"| {cell.name} | {planted} | {planted - len(missed)} | {slowest} |", flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of a pretrained model")
    parser.add_argument("--syncs", type=int, help="healthy ones, over all cells")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, and go on next time")
    parser.add_argument("--state", type=Path, default=Path("build/weight_sync"))
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--seeds", type=int, default=3, help="of each fault")
    parser.add_argument("--cells", default="", help="only those with this in their name")
    arguments = parser.parse_args()
    in_prepared_process()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        cells = cells_of(arguments.model) if arguments.model else tiny_cells(Path(folder))
        chosen = [cell for cell in cells if arguments.cells in cell.name]
        if arguments.faults:
            return report_faults(chosen, arguments.seeds)
        syncs = arguments.syncs or (300 if arguments.model else 10_000)
        return report_healthy(chosen, -(-syncs // len(cells)), arguments.state, time.monotonic() + arguments.seconds)


def report_faults(cells: Sequence[Cell], seeds: int) -> int:
    print("| cell | faults planted | found | syncs until the last was |\n|---|---|---|---|", flush=True)
    missed = [each for cell in cells for each in asyncio.run(find_faults(cell, seeds))]
    print(*missed, sep="\n")
    return int(bool(missed))


def report_healthy(cells: Iterable[Cell], target: int, state: Path, stop_at: float) -> int:
    state.mkdir(parents=True, exist_ok=True)
    print("| cell | healthy syncs | refused | tensors compared | largest mean relative difference | ms a sync |")
    print("|---|---|---|---|---|---|", flush=True)
    failed = []
    for cell in cells:
        tally = asyncio.run(sync_healthily(cell, target, state, stop_at))
        each = 1000 * tally.seconds / max(tally.done, 1)
        print(
            f"| {cell.name} | {tally.done} of {target} | {len(tally.failed)} | {tally.compared} | {tally.largest:.2g} "
            f"| {each:.0f} |",
            flush=True,
        )
        failed += tally.failed
    print(*failed, sep="\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
