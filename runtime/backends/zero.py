"""DeepSpeed engine of a network: accumulated gradients, their norm, a step or none, checkpoints.

What the loss is, is its owner's business. Nothing is compiled at run time: the optimiser is PyTorch's AdamW, and
collectives on a CPU go over gloo.
"""

from __future__ import annotations

import ctypes
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed
from torch import Tensor, nn

from ...dsl.model.recipe import DType, Offload
from ..errors import RunError
from ..learning.packing import PackedRow, compute_normaliser, make_idle_row
from ..protocols import LearnerSettings, Normaliser, OptimizerSettings, TrainSequence
from ..seeds import derive
from .checkpoint.pickles import RestrictedLoader
from .checkpoint.zero_state import STATE, load_state, save_state, whole_shape
from .checks.rows import RowNetwork
from .process_group import extend_timeout, join_process_group

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine

__all__ = [
    "Forward",
    "ZeroEngine",
    "gather_parameters",
    "is_divided",
    "load_divided",
    "max_over_ranks",
    "prepare_deepspeed",
    "sum_over_ranks",
]

Forward = Callable[[PackedRow], Tensor]


class ZeroEngine:
    """One rank of a network. With several ranks each gets its share of the sequences, and all are called alike; the
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
        self._engine, self._optimizer = _start_engine(network, settings, outside)
        self._gradients = _GRADIENTS[settings.zero](self._engine)
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
                    _return_freed_memory()
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


# --- ranks ---------------------------------------------------------------------------------------------------------


def sum_over_ranks(values: Tensor) -> Tensor:
    if torch.distributed.get_world_size() > 1:
        torch.distributed.all_reduce(values)
    return values


def max_over_ranks(values: Tensor) -> Tensor:
    if torch.distributed.get_world_size() > 1:
        torch.distributed.all_reduce(values, torch.distributed.ReduceOp.MAX)
    return values


# --- weights that are divided among ranks --------------------------------------------------------------------------


def is_divided(settings: LearnerSettings) -> bool:
    """Whether each rank holds a part of each weight; known once a launcher has made the group."""
    return settings.zero == 3 and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1


@contextmanager
def load_divided(settings: LearnerSettings) -> Iterator[None]:
    """Let `transformers` build a model of parts, and each rank read its own: none ever holds the whole model."""
    if not is_divided(settings):
        yield
        return
    from deepspeed.runtime.zero.partition_parameters import DeepSpeedTensorOverride
    from transformers import modeling_utils
    from transformers.integrations.deepspeed import set_hf_deepspeed_config, unset_hf_deepspeed_config

    zero = prepare_deepspeed().zero
    announced, loading = _Announced(_config(settings, 0)), cast(Any, modeling_utils)
    init, load = zero.Init, loading._load_state_dict_into_zero3_model

    class Divided(init):  # type: ignore[misc, valid-type]
        """Sends nothing around: what a weight is before it is read, nobody reads."""

        def _zero_init_param(self, parameter: nn.Parameter) -> None:
            self._convert_to_deepspeed_param(parameter)
            parameter.partition()  # type: ignore[attr-defined]

    # buffers keep their precision, as in a model that is loaded whole: rotary frequencies are useless in half of it
    zero.Init = partial(Divided, tensor_overrides=[DeepSpeedTensorOverride.device])
    loading._load_state_dict_into_zero3_model = _read_parts
    # only a weak reference is kept of it
    set_hf_deepspeed_config(announced)
    try:
        yield
    finally:
        unset_hf_deepspeed_config()
        zero.Init, loading._load_state_dict_into_zero3_model = init, load


def _read_parts(model: Any, tensors: dict[str, Tensor], settings: Any = None) -> tuple[list[str], set[str]]:
    """Copy this rank's part of each tensor of the files, which are mapped and not read yet; return what is wrong, and
    the names that no file has. `transformers` itself gathers each weight at all ranks and sends it from the first."""
    from transformers.integrations.deepspeed import _apply_weight_conversions_to_state_dict

    if settings is not None and settings.weight_mapping:
        tensors = _apply_weight_conversions_to_state_dict(model, dict(tensors), settings.weight_mapping)
        model._weight_conversions = settings.weight_mapping
    missing, problems = set(model.state_dict()), list[str]()
    held = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    for given, tensor in tensors.items():
        prefixed = f"{model.base_model_prefix}.{given}"
        name = prefixed if prefixed in missing else given
        if name not in missing:
            continue
        own = held[name]
        if tensor.shape != whole_shape(own):
            problems.append(f"{name} is {tuple(tensor.shape)} in its file and {tuple(whole_shape(own))} in the model")
            continue
        _copy_part(own, tensor)
        own._is_hf_initialized = True
        missing.discard(name)
    return problems, missing


@torch.no_grad()
def _copy_part(own: Any, whole: Tensor) -> None:
    """Copy what this rank holds of a tensor: a stretch of it, flattened, whose end may be padding."""
    if not hasattr(own, "ds_tensor"):
        own.copy_(whole)
        return
    flat, size = whole.flatten(), own.ds_tensor.ds_numel
    start = size * torch.distributed.get_rank(own.ds_process_group)
    held = max(0, min(size, flat.numel() - start))
    own.ds_tensor.narrow(0, 0, held).copy_(flat.narrow(0, min(start, flat.numel()), held))


class _Announced:
    """What `transformers` asks of the configuration of an engine to come."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def is_zero3(self) -> bool:
        return True


def gather_parameters(*parameters: Tensor, are_changed: bool = False) -> AbstractContextManager[Any]:
    """Make parameters whole within the context, those that are divided; `are_changed` keeps what the first rank makes
    of them."""
    if not any(hasattr(parameter, "ds_id") for parameter in parameters):
        return nullcontext()
    import deepspeed

    gathered: AbstractContextManager[Any] = deepspeed.zero.GatheredParameters(
        list(parameters), modifier_rank=0 if are_changed else None
    )
    return gathered


# --- gradients, by ZeRO stage --------------------------------------------------------------------------------------


class _WholeGradients:
    """Stage 0: each rank has all gradients, on the parameters."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        self._engine = engine

    def norm(self) -> float:
        return float(nn.utils.get_total_norm([p.grad for p in self._parameters() if p.grad is not None]))

    def clip(self, max_norm: float, norm: float) -> None:
        nn.utils.clip_grads_with_norm_(self._parameters(), max_norm, torch.tensor(norm))

    def discard(self) -> None:
        self._engine.zero_grad()

    def _parameters(self) -> list[nn.Parameter]:
        return list(self._engine.module.parameters())


class _PartitionedGradients:
    """Stages 1 to 3: the optimiser holds this rank's part."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        self._engine = engine

    def norm(self) -> float:
        return float(self._engine.optimizer.scaled_global_norm())

    def clip(self, max_norm: float, norm: float) -> None:
        self._engine.optimizer.clip_grad = max_norm

    def discard(self) -> None:
        """Make a gradient NaN: then DeepSpeed's own way of skipping a step clears all that it has accumulated."""
        from deepspeed.utils import safe_set_full_grad

        parameter = next(each for each in self._engine.module.parameters() if each.requires_grad)
        safe_set_full_grad(parameter, torch.full(whole_shape(parameter), math.nan, device=self._engine.device))
        self._engine.step()
        if self._engine.was_step_applied():
            raise RuntimeError("DeepSpeed applied an update that it had to skip")


class _PartitionedWeights(_PartitionedGradients):
    """Stage 3."""

    def norm(self) -> float:
        norms = [float(norm) for norm in self._engine.optimizer._get_norm_groups()]
        # a part's norm of -1 is DeepSpeed's word for "not a number"
        return math.nan if any(norm < 0 for norm in norms) else math.hypot(*norms)


_GRADIENTS: Mapping[int, Callable[[DeepSpeedEngine], _WholeGradients | _PartitionedGradients]] = {
    0: _WholeGradients,
    1: _PartitionedGradients,
    2: _PartitionedGradients,
    3: _PartitionedWeights,
}


# --- starting ------------------------------------------------------------------------------------------------------


def _start_engine(
    network: nn.Module, settings: LearnerSettings, outside: Sequence[Tensor]
) -> tuple[DeepSpeedEngine, torch.optim.Optimizer]:
    deepspeed = prepare_deepspeed()
    for parameter in outside if settings.zero == 3 else ():
        deepspeed.zero.register_external_parameter(network, parameter)
    trainable = _trainable(network)
    optimizer = (
        torch.optim.AdamW(
            _parameter_groups(trainable, settings.optimizer),
            lr=0.0,
            betas=settings.optimizer.betas,
            eps=settings.optimizer.eps,
            fused=True,
        )
        if trainable
        else None
    )
    engine, wrapped, _, _ = deepspeed.initialize(
        model=network,
        optimizer=optimizer,
        config=_config(settings, sum(whole_shape(parameter).numel() for parameter in trainable)),
        dist_init_required=False,
    )
    if torch.distributed.get_world_size() > 1:
        extend_timeout()
    return engine, wrapped


def prepare_deepspeed() -> Any:
    """Return the module, imported without a word, in a process that has its group."""
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    import deepspeed
    import deepspeed.ops

    # nothing is "compatible": all that DeepSpeed would compile for this machine is left out, and not even probed for
    deepspeed.ops.__compatible_ops__ = {}
    join_process_group()
    return deepspeed


def _trainable(network: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def _parameter_groups(parameters: list[nn.Parameter], settings: OptimizerSettings) -> list[dict[str, Any]]:
    if settings.weight_decay == 0.0:
        return [{"params": parameters, "weight_decay": 0.0}]
    matrices = [parameter for parameter in parameters if len(whole_shape(parameter)) > 1]
    vectors = [parameter for parameter in parameters if len(whole_shape(parameter)) <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    # adapters are matrices all
    return [group for group in groups if group["params"]]


def _config(settings: LearnerSettings, learning: int) -> dict[str, Any]:
    bucket = min(500_000_000, max(1, learning))
    return {
        # DeepSpeed's own accounting of batches is not used: `gather` says where each begins and ends
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0,
        "steps_per_print": 1 << 60,
        "zero_optimization": {
            # stage 1 in bf16 is another optimiser of DeepSpeed's, that cannot be asked for the gradient's norm before
            # it takes a step; stage 2 takes the same steps and keeps less
            "stage": max(settings.zero, 2) if settings.dtype is DType.BF16 else settings.zero,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
            **_OFFLOAD[settings.offload],
        },
        "zero_force_ds_cpu_optimizer": False,
        **_PRECISION[settings.dtype],
    }


_OFFLOAD: Mapping[Offload, dict[str, Any]] = {
    Offload.NONE: {},
    Offload.OPTIMIZER: {"offload_optimizer": {"device": "cpu"}},
    Offload.ALL: {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
}
_PRECISION: Mapping[DType, dict[str, Any]] = {
    DType.FP32: {},
    DType.BF16: {"bf16": {"enabled": True, "check_grad_overflow": True}, "data_types": {"grad_accum_dtype": "fp32"}},
}


# --- memory of a process on a CPU ----------------------------------------------------------------------------------


def _return_freed_memory() -> None:
    """Return freed memory to the kernel.

    glibc keeps what is freed between blocks that are still in use. Activations of rows of different lengths leave more
    such holes with each row, until a process holds twice what it uses.
    """
    if (trim := _find_trim()) is not None:
        trim(0)


@cache
def _find_trim() -> Callable[[int], int] | None:
    """Find `malloc_trim`, which glibc alone has."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
