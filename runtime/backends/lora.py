"""LoRA: two thin trainable matrices per frozen layer; only they are trained, synced and saved.

An adapter adds alpha / rank * B A x; B begins at 0, so the model begins as it was. With its adapters off it is the base
model again, with others in their place the model that those belong to: a reference needs no second model. On disk
adapters have the form that PEFT, vLLM and `transformers` read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional

from ...dsl.model.recipe import Lora
from ..errors import RunError
from ..protocols import Floats, Scorer, TrainSequence
from .checks.rows import find_backbone

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "AdaptedLinear",
    "AdapterReference",
    "adapted_layers",
    "adapter_shapes",
    "add_adapters",
    "named_adapters",
    "peft_name",
    "read_adapters",
    "read_foreign_adapters",
    "write_adapters",
]

_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"
_Shapes = Mapping[str, tuple[int, ...]]


class AdaptedLinear(nn.Linear):
    """Linear layer that shares the parameters of a frozen one, under the same names."""

    def __init__(self, frozen: nn.Linear, lora: Lora, generator: torch.Generator) -> None:
        super().__init__(frozen.in_features, frozen.out_features, bias=False, device="meta")
        self.weight, self.bias = frozen.weight, frozen.bias
        bound = frozen.in_features**-0.5
        down = torch.empty(lora.rank, frozen.in_features).uniform_(-bound, bound, generator=generator)
        self.lora_A = nn.Parameter(down.to(frozen.weight))
        self.lora_B = nn.Parameter(frozen.weight.new_zeros(frozen.out_features, lora.rank))
        self.is_disabled = False
        self.override: tuple[Tensor, Tensor] | None = None
        """Another A and B, used instead."""
        self._scale = lora.alpha / lora.rank
        self.dropout = lora.dropout

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as of the layer that it stands in for
        base = super().forward(input)
        if self.is_disabled:
            return base
        down, up = self.override or (self.lora_A, self.lora_B)
        low_rank = functional.linear(functional.dropout(input, self.dropout, self.training), down)
        return base + functional.linear(low_rank * self._scale, up)

    def merged(self) -> Tensor:
        """Return the one weight that does the same."""
        added = self._scale * (self.lora_B.float() @ self.lora_A.float())
        return (self.weight.float() + added).to(self.weight.dtype).detach()


def add_adapters(causal: PreTrainedModel, lora: Lora, seed: int) -> None:
    """Freeze the model and add adapters to the targets; their A is drawn from `seed`."""
    causal.requires_grad_(False)
    # the output layer is read without being called, and has none
    backbone, generator = find_backbone(causal), torch.Generator().manual_seed(seed)
    found = {
        name: module
        for name, module in backbone.named_modules()
        if isinstance(module, nn.Linear) and _last(name) in lora.targets
    }
    if missing := set(lora.targets) - {_last(name) for name in found}:
        raise RunError(f"model.lora.targets: the model has no linear layer '{min(missing)}'")
    for name, module in found.items():
        backbone.set_submodule(name, AdaptedLinear(module, lora, generator))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def adapted_layers(network: nn.Module) -> dict[str, AdaptedLinear]:
    return {name: module for name, module in network.named_modules() if isinstance(module, AdaptedLinear)}


def named_adapters(network: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for name, layer in adapted_layers(network).items():
        yield f"{name}.lora_A", layer.lora_A
        yield f"{name}.lora_B", layer.lora_B


class AdapterReference:
    """A learner's model with its adapters off, or with others in their place."""

    def __init__(self, learner: Scorer, network: nn.Module, others: Mapping[str, Tensor] | None) -> None:
        """`others` are keyed as the network's own adapters."""
        self._learner = learner
        self._layers = adapted_layers(network)
        self._overrides = {
            name: (others[f"{name}.lora_A"].to(layer.weight), others[f"{name}.lora_B"].to(layer.weight))
            for name, layer in self._layers.items()
            if others is not None
        }

    def logprobs(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        with self._override():
            return self._learner.logprobs(sequences, temperature)

    @contextmanager
    def _override(self) -> Iterator[None]:
        for name, layer in self._layers.items():
            layer.override = self._overrides.get(name)
            layer.is_disabled = layer.override is None
        try:
            yield
        finally:
            for layer in self._layers.values():
                layer.is_disabled, layer.override = False, None


# --- on disk, and in an engine -------------------------------------------------------------------------------------


def peft_name(name: str) -> str:
    """Return the PEFT name of one of our parameters."""
    return f"base_model.model.{name}.weight"


def write_adapters(weights: Mapping[str, Tensor], lora: Lora, folder: Path, base_model: str) -> None:
    """Write adapters as PEFT does; `base_model` is what it loads them onto."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({peft_name(name): tensor for name, tensor in weights.items()}, folder / _WEIGHTS)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": sorted(set(lora.targets)),
        "bias": "none",
        "inference_mode": True,
    }
    (folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def adapter_shapes(network: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a network's adapters; ZeRO 3 leaves a process parts of them alone."""
    return {name: tuple(getattr(each, "ds_shape", each.shape)) for name, each in named_adapters(network)}


def read_foreign_adapters(folder: Path, lora: Lora, shapes: _Shapes) -> dict[str, Tensor]:
    """Read adapters that PEFT, or a run of ours, wrote; RunError if they are not as the recipe says, or do not have the
    model's own `shapes`."""
    key = "model.lora.path"
    try:
        config = json.loads((folder / _CONFIG).read_bytes())
        weights = read_adapters(folder)
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise RunError(f"{key}: '{folder}' holds no LoRA adapters as PEFT writes them: {error}") from error
    if not isinstance(config, dict):
        raise RunError(f"{key}: '{folder / _CONFIG}' is no JSON object")
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if problem := next(_find_problems(config, lora, found, shapes), None):
        raise RunError(f"{key}: the adapters in '{folder}' {problem}")
    return {name: tensor.float() for name, tensor in weights.items()}


_COMPATIBLE = frozenset(
    {
        *("peft_type", "r", "lora_alpha", "target_modules", "exclude_modules", "layers_pattern", "lora_dropout"),
        *("task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode"),
        *("megatron_core", "qalora_group_size", "runtime_config", "eva_config"),
    }
)
"""Settings of PEFT that are compared separately, or change nothing in what trained adapters compute."""
_NEUTRAL = {"bias": ("none",), "init_lora_weights": (True, "gaussian", "orthogonal", "eva")}
"""Values with which adapters work like ours. PiSSA and the like start from a base model other than the recipe's."""


def _is_plain(name: str, value: Any) -> bool:
    is_none = value is None or value is False or value in ({}, [], "")
    return is_none or name in _COMPATIBLE or value in _NEUTRAL.get(name, ())


def _find_problems(config: Mapping[str, Any], lora: Lora, found: _Shapes, shapes: _Shapes) -> Iterator[str]:
    """Describe how adapters differ from those of the recipe, and of its model."""
    if (kind := config.get("peft_type")) != "LORA":
        yield f"have peft_type {kind}, and only LORA is supported: give others"
    for name, value in config.items():
        if not _is_plain(name, value):
            yield f"have {name} {str(value)[:60]}, which is not supported: merge them into the model, or train others"
    # PEFT may name its targets by a pattern: which there are is read off the weights
    targets = sorted({_last(name.rpartition(".lora_")[0]) for name in found})
    for what, ours, theirs in (
        ("rank", lora.rank, config.get("r")),
        ("alpha", lora.alpha, config.get("lora_alpha")),
        ("targets", sorted(set(lora.targets)), targets),
    ):
        if ours != theirs:
            yield f"have {what} {theirs}, the recipe {ours}: write it as they do"
    for name in sorted(found.keys() | shapes.keys()):
        if found.get(name) != shapes.get(name):
            own, needed = (shape and list(shape) for shape in (found.get(name), shapes.get(name)))
            yield f"are of another model: '{name}' has the shape {own} there, and {needed} in 'model.path'"


def read_adapters(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    ours = load_file(folder / _WEIGHTS).items()
    return {name.removeprefix("base_model.model.").removesuffix(".weight"): tensor for name, tensor in ours}
