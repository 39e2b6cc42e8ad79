"""One rank of learner and critic, as a launcher starts it: rank, ranks, store, model, ZeRO stage, rank of adapters (0:
none), file for results."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed
from agym.dsl.model.recipe import Lora
from agym.runtime.backends.critic import DeepSpeedCritic
from agym.runtime.backends.deepspeed import DeepSpeedLearner
from agym.runtime.protocols import LearnerSettings, TrainSequence, UpdateSettings, ValueSettings


def batch() -> list[TrainSequence]:
    rng = np.random.default_rng(0)
    return [_sequence(rng, int(length)) for length in rng.integers(5, 120, 13)]


def _sequence(rng: np.random.Generator, length: int) -> TrainSequence:
    loss_mask = rng.random(length) < 0.3
    loss_mask[0], loss_mask[-1] = False, True
    return TrainSequence(
        ids=rng.integers(0, 250, length).astype(np.int32),
        loss_mask=loss_mask,
        advantages=rng.normal(size=length).astype(np.float32),
        old_logprobs=(-5.7 + 0.1 * rng.normal(size=length)).astype(np.float32),
        values=np.zeros(length, np.float32),
        value_targets=rng.normal(size=length).astype(np.float32),
    )


def main(rank: int, ranks: int, store: str, model: Path, zero: int, lora: int, result: Path) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    adapters = Lora(rank=lora) if lora else None
    settings = LearnerSettings(model=model, zero=zero, lora=adapters, tokens_per_micro_batch=150)
    learner = DeepSpeedLearner(settings)
    # the last rank has one sequence and waits through the micro-batches of the others
    share = batch() if ranks == 1 else batch()[:-1] if rank == 0 else batch()[-1:]
    metrics = [learner.update(share, UpdateSettings(lr=1e-3)) for _ in range(2)]
    scored = learner.logprobs(share, 1.0)
    weights = {name: tensor.clone() for name, tensor in learner.weights()}
    critic = DeepSpeedCritic(settings, learner.weights())
    valuing = [critic.update(share, ValueSettings(lr=1e-3)) for _ in range(3)]
    values = critic.values(share)
    # saved, loaded by as many ranks and saved again
    learner.save(result.parent / "first")
    learner.load(result.parent / "first")
    learner.save(result.parent / "again")
    if rank == 0:
        found = {"metrics": metrics, "weights": weights, "scored": scored[0], "valuing": valuing, "values": values[0]}
        torch.save(found | {"notes": learner.notes}, result)
    torch.distributed.barrier()


if __name__ == "__main__":
    rank, ranks, store, model, zero, lora, result = sys.argv[1:]
    main(int(rank), int(ranks), store, Path(model), int(zero), int(lora), Path(result))
