"""Claim: DeepSpeed costs little: trained tokens per second are 0.95 (floor 0.8) of a plain PyTorch loop's. And so does
everything in GRPO other than its model: an update is 0.85 (floor 0.7) as fast as the model's bare forward and backward.

The quickstart's model, once on half of a step's episodes, as reinforcement learns, and once on eight, as imitation
does. `DeepSpeedLearner.update` packs, judges and measures; the plain loop gets the same rows ready packed, the same
model with the same attention, PyTorch's fused AdamW, the clipped loss and nothing else. The padded loop has what it
would have without packing: as many sequences as fit, in the order they come, below each other and masked.

The bare forward and backward has the same rows ready packed and no optimiser; its loss is the mean log-prob of the
trained tokens. A whole update of GRPO begins with the sequences as they were played. With a divergence in its loss it
asks the reference first, which is a forward pass more, and where the sampler's log-probs are not the learner's own (in
half precision, or of older weights) its own, which is another: what these passes alone leave is the ceiling.

    python bench/update.py [--rounds 15] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from agym.envs.protocol import Deadlines
from agym.runtime.backends.hf_models import ModelSource, load_causal_model
from agym.runtime.backends.policy import FrozenPolicy, Policy
from agym.runtime.learning.packing import PackedRow, pack
from agym.runtime.protocols import LearnerSettings, LossSettings, TrainSequence, UpdateSettings
from agym.runtime.rollout.env_connections import EnvConnector, OpenEnvs
from agym.runtime.workers.build import prepare_model
from engines import in_prepared_process, quickstart
from paired import Spent, alternated, ratio, table
from torch import Tensor, nn

_LR = 1e-4
_ROW_TOKENS = 2048
"""As in a run on a CPU, and so is the ZeRO stage: one rank has nothing to divide."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else arguments.rounds
    in_prepared_process()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = asyncio.run(_model(Path(folder)))
        settings = LearnerSettings(model=model, zero=0, tokens_per_micro_batch=_ROW_TOKENS)
        for what, sequences in (("reinforcement", episodes(64)), ("imitation", episodes(8, everything=True))):
            asyncio.run(measure(what, settings, sequences, rounds))
        asyncio.run(measure_whole(settings, episodes(64), rounds))
    return 0


async def _model(folder: Path) -> Path:
    envs = OpenEnvs(EnvConnector(folder, {}, print, Deadlines()))
    model = await prepare_model(quickstart(), folder, envs)
    await envs.close()
    return Path(model.path)


def episodes(count: int, *, everything: bool = False) -> list[TrainSequence]:
    """As long as the game's: an opening, then up to twelve commands and answers of about eight tokens each."""
    draws = np.random.Generator(np.random.PCG64(0))
    return [_episode(draws, int(draws.integers(2, 13)), everything) for _ in range(count)]


def _episode(draws: np.random.Generator, turns: int, everything: bool) -> TrainSequence:
    parts = [(everything, int(draws.integers(50, 90)))]
    for _ in range(turns):
        parts += [(everything, int(draws.integers(5, 11))), (True, int(draws.integers(5, 11)))]
    loss_mask = np.concatenate([np.full(length, learnt) for learnt, length in parts])
    loss_mask[0] = False
    return TrainSequence(
        ids=draws.integers(0, 128, len(loss_mask)).astype(np.int32),
        loss_mask=loss_mask,
        advantages=np.full(len(loss_mask), draws.normal(), np.float32),
        old_logprobs=draws.normal(-5.0, 0.1, len(loss_mask)).astype(np.float32),
    )


async def measure(what: str, settings: LearnerSettings, sequences: Sequence[TrainSequence], rounds: int) -> None:
    from agym.runtime.backends.deepspeed import DeepSpeedLearner

    learner, update = DeepSpeedLearner(settings), UpdateSettings(lr=_LR)

    async def ours() -> None:
        learner.update(sequences, update)

    ways: dict[str, Callable[[], Awaitable[None]]] = {
        "DeepSpeedLearner": ours,
        "plain loop, packed": packed_loop(settings, sequences),
        "plain loop, padded": padded_loop(settings, sequences),
    }
    spent = await alternated(ways, rounds)
    learner.close()
    tokens = sum(len(sequence.ids) for sequence in sequences)
    learnt = sum(int(sequence.loss_mask.sum()) for sequence in sequences)
    print(f"{what}: {len(sequences)} sequences, {tokens} tokens, {learnt} of them learnt\n")
    print(table("DeepSpeedLearner", spent, dict.fromkeys(ways, tokens)), end="\n\n")


# --- a whole update ------------------------------------------------------------------------------------------------

_LOSS = LossSettings(kl_coef=1e-3)


async def measure_whole(settings: LearnerSettings, sequences: Sequence[TrainSequence], rounds: int) -> None:
    from agym.runtime.backends.deepspeed import DeepSpeedLearner

    learner = DeepSpeedLearner(settings)
    reference = FrozenPolicy(settings, learner.device)

    async def plain() -> None:
        learner.update(sequences, UpdateSettings(lr=_LR))

    async def held() -> None:
        learner.update(referred(sequences), UpdateSettings(lr=_LR, loss=_LOSS))

    async def corrected() -> None:
        own = learner.logprobs(sequences, 1.0)
        fresh = [replace(each, old_logprobs=found) for each, found in zip(sequences, own, strict=True)]
        learner.update(referred(fresh), UpdateSettings(lr=_LR, loss=_LOSS))

    def referred(given: Sequence[TrainSequence]) -> list[TrainSequence]:
        found = reference.logprobs(given, 1.0)
        return [replace(each, reference_logprobs=values) for each, values in zip(given, found, strict=True)]

    whole = {
        "no divergence": plain,
        "divergence from a reference": held,
        "divergence, own log-probs before": corrected,
    }
    spent = await alternated({**bare_passes(settings, sequences), **whole}, rounds)
    learner.close()
    print(_of_bare(spent, list(whole), sum(len(sequence.ids) for sequence in sequences)))


def bare_passes(
    settings: LearnerSettings, sequences: Sequence[TrainSequence]
) -> dict[str, Callable[[], Awaitable[None]]]:
    """Once forward and backward through the model, and once forward."""
    policy, rows = Policy(settings), pack(sequences, settings.tokens_per_micro_batch, torch.device("cpu"))

    async def both() -> None:
        for row in rows:
            _of_row(policy, row)[0].mean().backward()
        policy.zero_grad()

    async def forward() -> None:
        with torch.no_grad():
            for row in rows:
                _of_row(policy, row)

    return {_BOTH: both, _FORWARD: forward}


_BOTH, _FORWARD = "bare forward and backward", "bare forward"


def _of_bare(spent: Mapping[str, Sequence[Spent]], whole: Sequence[str], tokens: int) -> str:
    both, forward = (median(each.process for each in spent[name]) for name in (_BOTH, _FORWARD))
    lines = [
        f"| {tokens} tokens, an update with | tokens/s | by {_BOTH}: wall | process | ceiling | of the ceiling |",
        "|---|---|---|---|---|---|",
    ]
    for further, name in enumerate(whole):
        wall, process = (ratio(spent[name], spent[_BOTH], clock) for clock in ("wall", "process"))
        ceiling = both / (both + further * forward)
        speed = tokens / median(each.wall for each in spent[name])
        lines.append(f"| {name} | {speed:.0f} | {wall:.3f} | {process:.3f} | {ceiling:.3f} | {process / ceiling:.3f} |")
    return "\n".join(lines)


# --- plain loops ---------------------------------------------------------------------------------------------------

Learnt = tuple[Tensor, Tensor, Tensor]
"""Of a micro-batch's trained tokens: log-probs, the old ones, advantages."""


def packed_loop(settings: LearnerSettings, sequences: Sequence[TrainSequence]) -> Callable[[], Awaitable[None]]:
    policy, rows = Policy(settings), pack(sequences, settings.tokens_per_micro_batch, torch.device("cpu"))
    return _loop(policy, sequences, lambda: (_of_row(policy, row) for row in rows))


def _of_row(policy: Policy, row: PackedRow) -> Learnt:
    hidden_TD = policy.causal.base_model(
        input_ids=row.ids_T[None], position_ids=row.positions_T[None], use_cache=False, layout=row.layout
    ).last_hidden_state[0]
    logp_NV = torch.log_softmax(hidden_TD[row.predict_N] @ policy.output_layer.T, dim=-1)
    assert row.old_N is not None
    return logp_NV.gather(1, row.targets_N[:, None])[:, 0], row.old_N, row.advantages_N


def padded_loop(settings: LearnerSettings, sequences: Sequence[TrainSequence]) -> Callable[[], Awaitable[None]]:
    model = load_causal_model(ModelSource(path=str(settings.model)), "float32", "sdpa")
    size = settings.tokens_per_micro_batch // max(len(sequence.ids) for sequence in sequences)
    batches = [_padded(sequences[at : at + size]) for at in range(0, len(sequences), size)]

    def learnt() -> Iterator[Learnt]:
        for ids_BL, mask_BL, learn_BL, old_N, advantages_N in batches:
            logits_BLV = model(input_ids=ids_BL, attention_mask=mask_BL, use_cache=False).logits[:, :-1]
            logp_NV = torch.log_softmax(logits_BLV[learn_BL[:, 1:]], dim=-1)
            yield logp_NV.gather(1, ids_BL[learn_BL][:, None])[:, 0], old_N, advantages_N

    return _loop(model, sequences, learnt)


def _padded(sequences: Sequence[TrainSequence]) -> tuple[Tensor, ...]:
    lengths_B = np.array([len(sequence.ids) for sequence in sequences])
    longest = int(lengths_B.max())

    def below(name: str, kind: type) -> Tensor:
        lines = [getattr(sequence, name) for sequence in sequences]
        return torch.from_numpy(np.stack([np.pad(line, (0, longest - len(line))) for line in lines]).astype(kind))

    mask_BL = torch.from_numpy(np.arange(longest) < lengths_B[:, None]).long()
    learn_BL = below("learn", np.bool_)
    old_N, advantages_N = below("old_logprobs", np.float32)[learn_BL], below("advantages", np.float32)[learn_BL]
    return below("ids", np.int64), mask_BL, learn_BL, old_N, advantages_N


def _loop(
    model: nn.Module, sequences: Sequence[TrainSequence], learnt: Callable[[], Iterator[Learnt]]
) -> Callable[[], Awaitable[None]]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LR, weight_decay=0.0, fused=True)
    tokens = sum(int(sequence.loss_mask.sum()) for sequence in sequences)
    model.train()

    async def go() -> None:
        for logprobs_N, old_N, advantages_N in learnt():
            ratio_N = (logprobs_N - old_N).exp()
            loss_N = torch.maximum(-advantages_N * ratio_N, -advantages_N * ratio_N.clamp(0.8, 1.2))
            (loss_N.sum() / tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return go


if __name__ == "__main__":
    sys.exit(main())
