"""Weights of which each rank holds a part (ZeRO stage 3): reading them from files, and making them whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import torch
import torch.distributed
from torch import Tensor, nn

from ...protocols import LearnerSettings
from ..checkpoint.zero_state import whole_shape
from .start import make_config, prepare_deepspeed

__all__ = ["gather_parameters", "is_divided", "load_divided"]


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
    announced, loading = _Announced(make_config(settings, 0)), cast(Any, modeling_utils)
    init, load = zero.Init, loading._load_state_dict_into_zero3_model

    class Divided(init):  # type: ignore[misc, valid-type]
        """Broadcasts nothing: the value of a weight before it is read from the files is never used."""

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
    """What `transformers` reads from the configuration of an engine that is yet to be made."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def is_zero3(self) -> bool:
        return True


def gather_parameters(*parameters: Tensor, are_changed: bool = False) -> AbstractContextManager[Any]:
    """Make those parameters that are divided whole within the context; `are_changed` keeps the first rank's changes."""
    if not any(hasattr(parameter, "ds_id") for parameter in parameters):
        return nullcontext()
    import deepspeed

    gathered: AbstractContextManager[Any] = deepspeed.zero.GatheredParameters(
        list(parameters), modifier_rank=0 if are_changed else None
    )
    return gathered
