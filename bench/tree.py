"""Claim: the learner computes a shared prefix once, so that its update is .85 (floor .7) as much faster than one over
plain rows as arithmetic allows; the gradients are those of plain rows (1e-5 relative, in fp32).

Groups of eight episodes with a prompt of 300 or 1,000 tokens and 80 or 240 more each, all of them trained on; the shape
of SmolLM2-135M with random weights (or `--model FOLDER`), on two threads. Both ways are `DeepSpeedLearner.update` with
the settings that `agym run` gives it, in turn; `hardware.train.share_prefixes` is what differs. What arithmetic allows
is the ratio of multiplications: linear layers for each token, attention for each pair, the output layer for each
trained token. Log-probs without gradient, as the reference and old ones are taken, follow. Memory is the resident peak
of an update over what is resident before it.

    python bench/tree.py [--rounds 3] [--groups 1] [--dtype fp32 bf16] [--case 300:80 ...] [--lora 16] [--layers 30]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from agym.runtime.backends.checks.rows import RowKind
from agym.runtime.backends.engine_variables import missing_variables
from agym.runtime.backends.hf_models import ModelSource
from agym.runtime.learning.loss import compute_loss
from agym.runtime.learning.packing import PackedRow, pack
from agym.runtime.protocols import LearnerSettings, TrainSequence, UpdateSettings
from agym.runtime.workers.build import learner_settings
from engines import quickstart
from paired import Spent, alternated, ratio

if TYPE_CHECKING:
    from agym.runtime.backends.deepspeed import DeepSpeedLearner

_CASES = ("300:80", "300:240", "1000:80", "1000:240")
_GROUP = 8
_THREADS = 2
_HEAD = "| case | tokens, plain / tree | update s, plain / tree | ratio wall (process) | allowed | share | of tokens |"
_HEAD += " log-probs ratio | allowed | gradients apart | peak GiB, plain / tree |"
_UPDATE = UpdateSettings(lr=1e-6)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--dtype", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--case", nargs="+", default=_CASES, help="tokens of the prompt, and after it")
    parser.add_argument("--lora", type=int, default=0, help="rank of adapters; all weights if not given")
    parser.add_argument("--tokens-per-micro-batch", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--model", type=Path)
    arguments = parser.parse_args()
    if missing := missing_variables(os.environ, threads=_THREADS, cpu=True):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **missing})
    torch.set_num_threads(_THREADS)
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or make_model(Path(folder), arguments.layers)
        for dtype in arguments.dtype:
            measure(_settings(model, dtype, arguments), dtype, arguments)
    return 0


def make_model(folder: Path, layers: int) -> Path:
    """Write a model of SmolLM2-135M's shape, with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rope_theta=100000.0,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def _settings(model: Path, dtype: str, arguments: Any) -> LearnerSettings:
    adapters = (f"model.lora={{rank: {arguments.lora}}}",) if arguments.lora else ()
    size = f"hardware.train.tokens_per_micro_batch={arguments.tokens_per_micro_batch}"
    return learner_settings(quickstart(f"model.dtype={dtype}", size, *adapters), ModelSource(path=str(model)))


# --- one precision -------------------------------------------------------------------------------------------------


def measure(settings: LearnerSettings, dtype: str, arguments: Any) -> None:
    from agym.runtime.backends.deepspeed import DeepSpeedLearner

    learner = DeepSpeedLearner(settings)
    print(f"{dtype}, {'LoRA' if settings.lora else 'all weights'}, notes: {learner.notes or 'none'}\n")
    print(_HEAD, "|---" * (_HEAD.count("|") - 1) + "|", sep="\n")
    for case in arguments.case:
        prompt, after = map(int, case.split(":"))
        print(_measure_case(learner, settings, arguments, prompt, after), flush=True)
    print()
    learner.close()


def _measure_case(learner: DeepSpeedLearner, settings: LearnerSettings, arguments: Any, prompt: int, after: int) -> str:
    sequences = list(make_groups(arguments.groups, prompt, after, learner.vocab))
    plain, tree = (Work.count(learner, sequences, settings, shares) for shares in (False, True))
    apart = _compare_gradients(learner, sequences) if settings.zero == 0 else float("nan")
    peaks = [_measure_peak(learner, sequences, kind) for kind in (RowKind.PACKED, RowKind.TREE)]
    update = asyncio.run(_alternate(learner, sequences, arguments.rounds, "update"))
    passes = asyncio.run(_alternate(learner, sequences, arguments.rounds, "logprobs"))
    faster = {clock: ratio(update["tree"], update["plain"], clock) for clock in ("wall", "process")}
    allowed = plain.update / tree.update
    seconds = [median(each.wall for each in update[name]) for name in ("plain", "tree")]
    cells = [
        f"{prompt} + {after}",
        f"{plain.tokens} / {tree.tokens}",
        f"{seconds[0]:.2f} / {seconds[1]:.2f}",
        f"{faster['wall']:.2f} ({faster['process']:.2f})",
        f"{allowed:.2f}",
        f"{faster['wall'] / allowed:.2f}",
        f"{plain.tokens / tree.tokens:.2f}",
        f"{ratio(passes['tree'], passes['plain'], 'wall'):.2f}",
        f"{plain.forward / tree.forward:.2f}",
        f"{apart:.1e}",
        f"{peaks[0]:.2f} / {peaks[1]:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def make_groups(groups: int, prompt: int, after: int, vocab: int) -> Iterator[TrainSequence]:
    draws = np.random.Generator(np.random.PCG64(0))
    for _ in range(groups):
        shared = draws.integers(0, vocab, prompt)
        for _ in range(_GROUP):
            ids = np.concatenate([shared, draws.integers(0, vocab, after)]).astype(np.int32)
            mask = np.arange(len(ids)) >= prompt
            yield TrainSequence(
                ids=ids,
                loss_mask=mask,
                advantages=np.full(len(ids), draws.normal(), np.float32),
                old_logprobs=draws.normal(-10.8, 0.1, len(ids)).astype(np.float32),
            )


async def _alternate(
    learner: DeepSpeedLearner, sequences: Sequence[TrainSequence], rounds: int, what: str
) -> dict[str, list[Spent]]:
    async def work(kind: RowKind) -> None:
        learner._reader.use(kind)
        _WORK[what](learner, sequences)

    return await alternated({"plain": lambda: work(RowKind.PACKED), "tree": lambda: work(RowKind.TREE)}, rounds)


_WORK: dict[str, Any] = {
    "update": lambda learner, sequences: learner.update(sequences, _UPDATE),
    "logprobs": lambda learner, sequences: learner.logprobs(sequences, 1.0),
}


# --- what arithmetic allows ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Multiplications of one pass over all sequences."""

    tokens: int
    forward: int
    update: int
    """Forward and backward."""

    @classmethod
    def count(
        cls, learner: DeepSpeedLearner, sequences: Sequence[TrainSequence], settings: LearnerSettings, shares: bool
    ) -> Work:
        """Of all sequences, shared tokens once even where a row has no room for them, or one by one."""
        causal = learner._policy.causal
        config, backbone = causal.config, causal.base_model
        linear = sum(each.weight.numel() for each in backbone.modules() if isinstance(each, torch.nn.Linear))
        whole = sum(len(each.ids) for each in sequences)
        tokens, pairs = 0, 0
        for row in pack(sequences, whole, torch.device("cpu"), shares_prefixes=shares):
            tokens += len(row.ids_T)
            # a token attends to itself and to those before it on its path
            pairs += int((row.positions_T + 1).sum())
        learnt = sum(int(each.loss_mask.sum()) for each in sequences)
        body = linear * tokens + 2 * config.num_hidden_layers * config.hidden_size * pairs
        head = learnt * config.vocab_size * config.hidden_size
        # without gradients of frozen weights a backward pass is as long as the forward one; logits in pieces are
        # computed once more
        backward = 1 if settings.lora else 2
        again = head if learnt * config.vocab_size > settings.logit_elements else 0
        return cls(tokens=tokens, forward=body + head, update=(1 + backward) * (body + head) + again)


# --- gradients and memory ------------------------------------------------------------------------------------------


def _compare_gradients(learner: DeepSpeedLearner, sequences: Sequence[TrainSequence]) -> float:
    """The norm of the difference of all gradients, by that of plain rows."""
    plain, tree = (_gradients(learner, sequences, kind) for kind in (RowKind.PACKED, RowKind.TREE))
    apart = sum(float((one - other).double().square().sum()) for one, other in zip(plain, tree, strict=True))
    return float((apart / sum(float(one.double().square().sum()) for one in plain)) ** 0.5)


def _gradients(learner: DeepSpeedLearner, sequences: Sequence[TrainSequence], kind: RowKind) -> list[torch.Tensor]:
    learner._reader.use(kind)
    normaliser = learner.compute_global_normaliser(sequences)
    loss = replace(_UPDATE.loss, kl_coef=0.0)

    def term(row: PackedRow) -> torch.Tensor:
        return compute_loss(learner._inputs(row, normaliser, loss), loss).loss

    learner.accumulate(sequences, term, learner._logprobs)
    found = [each.grad.clone() for each in learner._policy.parameters() if each.grad is not None]
    learner.discard()
    return found


def _measure_peak(learner: DeepSpeedLearner, sequences: Sequence[TrainSequence], kind: RowKind) -> float:
    """GiB that an update takes at its peak over what is there before it."""
    learner._reader.use(kind)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    learner.update(sequences, _UPDATE)
    return (_resident("VmHWM") - before) / 2**20


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    sys.exit(main())
