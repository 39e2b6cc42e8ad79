"""DeepSpeed engine of a network: accumulated gradients, their norm, a step or none, checkpoints.

The caller supplies the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from ....dsl.model.recipe import DType
from ...errors import RunError
from ...learning.packing import PackedRow, compute_normaliser, make_idle_row
from ...protocols import LearnerSettings, Normaliser, OptimizerSettings, TrainSequence
from ...seeds import derive
from ..checkpoint.pickles import RestrictedLoader
from ..checkpoint.zero_state import STATE, load_state, save_state
from ..checks.rows import RowNetwork
from ..process_group import max_over_ranks, sum_over_ranks
from .divided_weights import gather_parameters
from .gradients import GRADIENTS
from .host_memory import return_freed_memory
from .start import start_engine

__all__ = ["Forward", "ZeroEngine"]

Forward = Callable[[PackedRow], Tensor]


class ZeroEngine:
    """One rank of a network. With several ranks, each gets its share of the sequences, and all make the same calls; the
    launcher has then made the process group. Ranks that divide rows between them get the same share. A network without
    trainable parameters is only read."""

    def __init__(self, network: RowNetwork, settings: LearnerSettings, outside: Sequence[Tensor] = ()) -> None:
        """`outside` are parameters that the network reads without calling the module that holds them."""
        if settings.zero == 0 and settings.dtype is not DType.FP32:
            # DeepSpeed runs an empty Adam step at its start there, which takes a quarter off the first update
            raise ValueError(f"{settings.dtype} needs ZeRO stage 1 or higher")
        if settings.dtype is DType.FP16:
            raise ValueError("fp16 gradients underflow: a learner needs bf16 or fp32")
        self._capacity = settings.tokens_per_micro_batch
        self._has_decay = settings.optimizer.weight_decay > 0
        self._seed = settings.seed
        self._ranks_per_share = settings.sequence_parallel
        self._is_all_trainable = all(parameter.requires_grad for parameter in network.parameters())
        self._engine, self._optimizer = start_engine(network, settings, outside)
        self._gradients = GRADIENTS[settings.zero](self._engine)
        self.notes = network.check(self)
        self._reader = network.rows

    def __call__(self, *inputs: Any) -> Any:
        return self._engine(*inputs)

    @property
    def device(self) -> torch.device:
        device = self._engine.device
        assert isinstance(device, torch.device)
        return device

    # --- micro-batches

    def outputs(self, sequences: Sequence[TrainSequence], forward: Forward) -> tuple[list[PackedRow], list[Tensor]]:
        """Run `forward` on this rank's micro-batches, without gradient; return both."""
        self._engine.eval()
        with torch.no_grad():
            found = [(row, forward(row or self._idle_row)) for row in self._pack(sequences)]
        used = [(row, output) for row, output in found if row is not None]
        return [row for row, _ in used], [output for _, output in used]

    def accumulate(self, sequences: Sequence[TrainSequence], loss: Forward, idle: Forward) -> tuple[float, int]:
        """Accumulate the gradients of all micro-batches; return their norm and the number of micro-batches.

        `loss` has the divisor of the whole update already. `idle` is the network's output for a row without trained
        tokens: a rank without a micro-batch goes through the collectives of the others.
        """
        self._engine.train()
        rows = self._pack(sequences)
        with self._seed_dropout():
            for at, row in enumerate(rows):
                self._engine.set_gradient_accumulation_boundary(at == len(rows) - 1)
                share = idle(self._idle_row).sum() * 0.0 if row is None else loss(row)
                # ranks average their gradients; the divisor is already that of all of them, and of a row that they
                # divide each has only its own part of the gradient
                self._engine.backward(share * torch.distributed.get_world_size(), scale_wrt_gas=False)
                if self.device.type == "cpu":
                    return_freed_memory()
        return self._gradients.norm(), len(rows)

    @contextmanager
    def _seed_dropout(self) -> Iterator[None]:
        """Seed dropout by update and rank, independent of other draws in this process."""
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(derive(self._seed, "update", self._engine.global_steps, torch.distributed.get_rank()))
            yield

    @property
    def _idle_row(self) -> PackedRow:
        return make_idle_row(self.device)

    def _pack(self, sequences: Sequence[TrainSequence]) -> list[PackedRow | None]:
        """Pack this rank's micro-batches; None where it has none left and another rank still has."""
        rows = self._reader.pack(sequences, self._capacity, self.device)
        most = int(max_over_ranks(torch.tensor(len(rows), device=self.device)))
        return [*rows, *[None] * (most - len(rows))]

    def compute_global_normaliser(self, sequences: Sequence[TrainSequence]) -> Normaliser:
        """Count tokens and sequences over all ranks: the divisor of an update."""
        own = compute_normaliser(sequences)
        counts = self.sum_over_shares(torch.tensor([own.tokens, own.sequences], device=self.device))
        tokens, number = counts.tolist()
        return Normaliser(tokens=tokens, sequences=number)

    def sum_over_shares(self, values: Tensor) -> Tensor:
        """Sum what ranks have of their shares of the sequences, each share once."""
        is_first = torch.distributed.get_rank() % self._ranks_per_share == 0
        return sum_over_ranks(values if is_first else torch.zeros_like(values))

    # --- a step, or none

    def step(self, lr: float, max_grad_norm: float, grad_norm: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._gradients.clip(max_grad_norm, grad_norm)
        self._engine.step()
        if not self._engine.was_step_applied():
            raise RuntimeError("DeepSpeed skipped an update that was finite")

    def discard(self) -> None:
        """Discard the gradients; network and optimiser stay as they were."""
        self._gradients.discard()

    def set_optimizer(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        """Set the optimiser's constants; `fresh` also resets its averages.

        Weight decay is for the first group, the matrices; a network started without any has one group of all
        parameters, and cannot get weight decay later.
        """
        if settings.weight_decay and not self._has_decay:
            raise ValueError(
                "weight decay needs a learner that was built with it, which gives matrices a group of their own"
            )
        for group, decay in zip(self._optimizer.param_groups, (settings.weight_decay, 0.0), strict=False):
            group.update(betas=settings.betas, eps=settings.eps, weight_decay=decay)
        if fresh:
            for state in self._optimizer.state.values():
                for average in state.values():
                    if isinstance(average, Tensor):
                        average.zero_()

    # --- what it holds

    def gather_parameters(self, *parameters: Tensor) -> AbstractContextManager[Any]:
        """Make partitioned parameters whole within the context."""
        return gather_parameters(*parameters)

    def save(self, folder: Path) -> None:
        save_state(self._engine, folder)

    def load(self, folder: Path) -> None:
        if (folder / STATE).exists():
            load_state(self._engine, folder)
        else:
            self._load_0_1_0(folder)

    def _load_0_1_0(self, folder: Path) -> None:
        """Load what version 0.1.0 saved: DeepSpeed's own checkpoint, by a loader that runs no code."""
        if not folder.is_dir():
            raise RunError(f"'{folder}' is missing: resume from another checkpoint")
        own, self._engine.checkpoint_engine = self._engine.checkpoint_engine, RestrictedLoader()
        try:
            _, state = self._engine.load_checkpoint(
                str(folder.parent), tag=folder.name, load_module_strict=self._is_all_trainable
            )
            torch.set_rng_state(state["torch_rng"].cpu())
        except RunError:
            raise
        except Exception as error:
            # what a file holds can be anything, and so can what DeepSpeed makes of it
            raise RunError(f"'{folder}' cannot be loaded: {type(error).__name__}: {str(error)[:200]}") from error
        finally:
            self._engine.checkpoint_engine = own

    def close(self) -> None:
        self._engine.destroy()
