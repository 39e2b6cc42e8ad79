"""State of a DeepSpeed engine by parameter names: fp32 weights, both moments, step counts, buffers, random generators.

Each rank holds pieces of them in tensors of its own, its masters, laid out by the ZeRO stage. They are saved whole, so
any number of ranks can load them under any stage. All ranks make the same calls; the first one writes. At most one
parameter is whole in memory at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch import Tensor, nn

from ...errors import RunError
from .tensor_files import SHARD_BYTES, TensorReader, TensorShape, write_tensors

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine

__all__ = ["STATE", "load_state", "save_state", "whole_shape"]

STATE = "state.json"
_VERSION = 1
_WEIGHT, _MOMENTS = "weight", ("exp_avg", "exp_avg_sq")
_NUMBERS = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")
"""What a dynamic loss scale continues from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """This rank's part of a parameter."""

    master: Tensor
    """Holds it in fp32; the optimiser's averages are stored under it, in the same layout."""
    offset: int
    """In the master."""
    start: int
    """In the parameter."""
    length: int

    def of(self, flat: Tensor) -> Tensor:
        return flat.detach().view(-1).narrow(0, self.offset, self.length)


def save_state(engine: DeepSpeedEngine, folder: Path, shard_bytes: int = SHARD_BYTES) -> None:
    """Write everything that decides the next update; the folder must not exist."""
    parameters, steps = _parameters(engine), _steps(engine)
    tensors = _gather_all(engine, parameters)
    if torch.distributed.get_rank() == 0:
        folder.mkdir(parents=True)
        count = write_tensors(folder, _shapes(engine, parameters), tensors, shard_bytes)
        text = {
            "version": _VERSION,
            "files": count,
            "global_steps": engine.global_steps,
            "steps": dict(zip(parameters, steps, strict=True)),
            "loss_scale": _loss_scale(engine),
        }
        (folder / STATE).write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    else:
        for _ in tensors:
            pass
    torch.distributed.barrier()


def load_state(engine: DeepSpeedEngine, folder: Path) -> None:
    """Restore what `save_state` wrote, under any stage and with any number of ranks."""
    state, parameters = _read_state(folder), _parameters(engine)
    shapes = _shapes(engine, parameters)
    if engine.zero_optimization_partition_weights():
        engine.optimizer.checkpoint_event_prologue()
    with TensorReader(folder, state["files"]) as reader:
        if strangers := reader.names - shapes.keys() - {_CUDA_RNG}:
            raise RunError(f"'{folder}' holds the tensor '{min(strangers)}', which the model lacks")
        for name, parameter in parameters.items():
            piece = _LAYOUTS[_stage(engine)](engine, parameter)
            if piece is not None:
                _restore(engine, reader, name, shapes[f"{_WEIGHT}/{name}"], piece, state["steps"])
        for name, buffer in _buffers(engine).items():
            buffer.copy_(reader.read(name, shapes[name]))
        _restore_generators(reader, shapes)
    _REFRESH[_stage(engine)](engine)
    engine.global_steps = state["global_steps"]
    for name, value in state["loss_scale"].items():
        setattr(engine.optimizer.loss_scaler, name, value)


def _read_state(folder: Path) -> Any:
    path = folder / STATE
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        numbers = [state["version"], state["files"], state["global_steps"], *state["steps"].values()]
        scale = [*state["loss_scale"].values()]
        fits = all(type(each) is int and each >= 0 for each in numbers) and state["loss_scale"].keys() <= {*_NUMBERS}
        if not fits or not all(type(each) in (int, float) for each in scale):
            raise ValueError("a number is missing or of another kind")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"'{path}' cannot be read: {error}; resume from another checkpoint") from error
    if state["version"] != _VERSION:
        raise RunError(f"'{path}' is of version {state['version']}; expected {_VERSION}: use the agym that wrote it")
    return state


# --- what there is -------------------------------------------------------------------------------------------------

_TORCH_RNG, _CUDA_RNG = "generator/torch", "generator/cuda"


def _parameters(engine: DeepSpeedEngine) -> dict[str, nn.Parameter]:
    """The trained ones in the order of their names."""
    return dict(sorted((name, each) for name, each in engine.module.named_parameters() if each.requires_grad))


def _buffers(engine: DeepSpeedEngine) -> dict[str, Tensor]:
    """Those that are part of a model's weights."""
    return {
        f"buffer/{prefix}{'.' if prefix else ''}{name}": buffer
        for prefix, module in sorted(engine.module.named_modules())
        for name, buffer in sorted(module._buffers.items())
        if buffer is not None and name not in module._non_persistent_buffers_set
    }


def _generators() -> dict[str, Tensor]:
    found = {_TORCH_RNG: torch.get_rng_state()}
    return found | ({_CUDA_RNG: torch.cuda.get_rng_state()} if torch.cuda.is_initialized() else {})


def _restore_generators(reader: TensorReader, shapes: Mapping[str, TensorShape]) -> None:
    torch.set_rng_state(reader.read(_TORCH_RNG, shapes[_TORCH_RNG]))
    if _CUDA_RNG in shapes and _CUDA_RNG in reader.names:
        torch.cuda.set_rng_state(reader.read(_CUDA_RNG, shapes[_CUDA_RNG]))


def _shapes(engine: DeepSpeedEngine, parameters: Mapping[str, nn.Parameter]) -> dict[str, TensorShape]:
    """Of all tensors, in the order in which they are written."""
    weights = {
        f"{kind}/{name}": TensorShape(dtype=torch.float32, shape=tuple(whole_shape(parameter)))
        for name, parameter in parameters.items()
        for kind in (_WEIGHT, *_MOMENTS)
    }
    others = _buffers(engine) | _generators()
    return weights | {name: TensorShape(dtype=each.dtype, shape=tuple(each.shape)) for name, each in others.items()}


def whole_shape(parameter: Tensor) -> torch.Size:
    """Return the shape of a parameter, which under stage 3 is empty until it is gathered."""
    shape: torch.Size = getattr(parameter, "ds_shape", parameter.shape)
    return shape


def _loss_scale(engine: DeepSpeedEngine) -> dict[str, float]:
    found = vars(getattr(engine.optimizer, "loss_scaler", object) or object)
    return {name: found[name] for name in _NUMBERS if name in found and found.get("dynamic")}


# --- whole from pieces, and back -----------------------------------------------------------------------------------


def _gather_all(engine: DeepSpeedEngine, parameters: Mapping[str, nn.Parameter]) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in parameters.items():
        piece = _LAYOUTS[_stage(engine)](engine, parameter)
        for kind in (_WEIGHT, *_MOMENTS):
            yield f"{kind}/{name}", _gather(engine, parameter, piece, kind)
    yield from (_buffers(engine) | _generators()).items()


def _gather(engine: DeepSpeedEngine, parameter: Tensor, piece: _Piece | None, kind: str) -> Tensor:
    shape = whole_shape(parameter)
    # as whole numbers: a sum of floats would lose the sign of a zero
    whole = torch.zeros(shape.numel(), dtype=torch.int32, device=engine.device)
    if piece is not None and (flat := _flat(engine, piece.master, kind)) is not None:
        whole[piece.start : piece.start + piece.length] = piece.of(flat).view(torch.int32).to(engine.device)
    if _stage(engine) > 0 and torch.distributed.get_world_size() > 1:
        torch.distributed.all_reduce(whole)
    return whole.view(torch.float32).view(shape)


def _flat(engine: DeepSpeedEngine, master: Tensor, kind: str) -> Tensor | None:
    """None before the first update, when there are no averages."""
    return master if kind == _WEIGHT else engine.basic_optimizer.state.get(master, {}).get(kind)


def _steps(engine: DeepSpeedEngine) -> list[int]:
    """Updates that the optimiser has made, by parameter."""
    found = []
    for parameter in _parameters(engine).values():
        piece = _LAYOUTS[_stage(engine)](engine, parameter)
        found.append(0.0 if piece is None else float(engine.basic_optimizer.state.get(piece.master, {}).get("step", 0)))
    steps = torch.tensor(found, dtype=torch.float64, device=engine.device)
    if torch.distributed.get_world_size() > 1:
        torch.distributed.all_reduce(steps, torch.distributed.ReduceOp.MAX)
    return [int(each) for each in steps.tolist()]


def _restore(
    engine: DeepSpeedEngine,
    reader: TensorReader,
    name: str,
    shape: TensorShape,
    piece: _Piece,
    steps: Mapping[str, int],
) -> None:
    state = engine.basic_optimizer.state[piece.master]
    if not state:
        # as AdamW initialises it at its first step
        state["step"] = torch.zeros((), device=piece.master.device)
        state |= {kind: torch.zeros_like(piece.master) for kind in _MOMENTS}
    state["step"].fill_(steps.get(name, 0))
    for kind in (_WEIGHT, *_MOMENTS):
        flat = _flat(engine, piece.master, kind)
        assert flat is not None
        whole = reader.read(f"{kind}/{name}", shape).view(-1)
        piece.of(flat).copy_(whole[piece.start : piece.start + piece.length])


# --- where each stage keeps its pieces -----------------------------------------------------------------------------


def _stage(engine: DeepSpeedEngine) -> int:
    return int(engine.zero_optimization_stage())


def _whole_piece(engine: DeepSpeedEngine, parameter: nn.Parameter) -> _Piece:
    return _Piece(master=parameter, offset=0, start=0, length=parameter.numel())


def _flat_piece(engine: DeepSpeedEngine, parameter: Any) -> _Piece | None:
    """Stages 1 and 2: a part of one flat tensor for each group of parameters."""
    mapping = parameter._hp_mapping
    if mapping is None:
        return None
    own, theirs = mapping.lp_fragment_address, mapping.hp_fragment_address
    master = engine.optimizer.single_partition_of_fp32_groups[mapping.param_group_index]
    return _Piece(master=master, offset=theirs.start, start=own.start, length=own.numel)


def _sharded_piece(engine: DeepSpeedEngine, parameter: Any) -> _Piece | None:
    """Stage 3: each parameter is cut into equal parts, the last of them filled up."""
    zero = engine.optimizer
    group, offset, numel = zero.grad_position[zero.get_param_id(parameter)]
    start = torch.distributed.get_rank(group=parameter.ds_process_group) * numel
    length = min(numel, parameter.ds_numel - start)
    master = zero.fp32_partitioned_groups_flat[group]
    return _Piece(master=master, offset=offset, start=start, length=length) if length > 0 else None


_LAYOUTS: Mapping[int, Callable[[Any, Any], _Piece | None]] = {
    0: _whole_piece,
    1: _flat_piece,
    2: _flat_piece,
    3: _sharded_piece,
}


def _update_sharded_weights(engine: DeepSpeedEngine) -> None:
    for group in range(len(engine.optimizer.fp32_partitioned_groups_flat)):
        engine.optimizer._reassign_or_swap_out_partitioned_parameters(group)
    engine.optimizer.checkpoint_event_epilogue()


_REFRESH: Mapping[int, Callable[[Any], None]] = {
    0: lambda engine: None,
    1: lambda engine: engine.optimizer.update_lp_params(),
    2: lambda engine: engine.optimizer.update_lp_params(),
    3: _update_sharded_weights,
}
"""Copy the masters to the weights that the network computes with."""
