"""Adapters to start from that others wrote: what is taken and what is refused, without an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from agym.dsl.model.recipe import Lora
from agym.runtime.backends.lora import peft_name, read_foreign_adapters, write_adapters
from agym.runtime.errors import RunError
from safetensors.torch import save_file

LORA = Lora(rank=3, alpha=7.0, targets=("q_proj", "up_proj"))
SHAPES = {
    f"model.layers.{layer}.{name}.lora_{part}": shape
    for layer in range(2)
    for name in LORA.targets
    for part, shape in (("A", (3, 8)), ("B", (6, 3)))
}
NAME = "model.layers.0.q_proj.lora_A"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_adapters({name: torch.ones(shape) for name, shape in SHAPES.items()}, LORA, tmp_path, "base")
    return tmp_path


def configure(folder: Path, **settings: Any) -> None:
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, **settings}))


def test_adapters_are_read_as_they_were_written(folder: Path) -> None:
    found = read_foreign_adapters(folder, LORA, SHAPES)
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == SHAPES
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == "base"


def test_settings_of_peft_that_change_nothing_are_taken(folder: Path) -> None:
    configure(
        folder,
        **{name: {} for name in ("alpha_pattern", "rank_pattern", "loftq_config")},
        **dict.fromkeys(("use_dora", "use_rslora", "lora_bias", "fan_in_fan_out"), False),
        **dict.fromkeys(("modules_to_save", "layers_to_transform", "layer_replication", "target_parameters")),
        init_lora_weights="gaussian",
        megatron_core="megatron.core",
        qalora_group_size=16,
    )
    assert read_foreign_adapters(folder, LORA, SHAPES).keys() == SHAPES.keys()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"r": 4}, "have rank 4, the recipe 3: write it as they do"),
        ({"lora_alpha": 8}, "have alpha 8, the recipe 7.0: write it as they do"),
        ({"peft_type": "IA3"}, "have peft_type IA3, and only LORA is supported"),
        ({"use_rslora": True}, "have use_rslora True, which is not supported"),
        ({"use_dora": True}, "have use_dora True"),
        ({"use_qalora": True}, "have use_qalora True"),
        ({"lora_bias": True}, "have lora_bias True"),
        ({"bias": "all"}, "have bias all"),
        ({"fan_in_fan_out": True}, "have fan_in_fan_out True"),
        ({"alpha_pattern": {"q_proj": 1}}, "have alpha_pattern {'q_proj': 1}"),
        ({"rank_pattern": {"q_proj": 1}}, "have rank_pattern {'q_proj': 1}"),
        ({"modules_to_save": ["lm_head"]}, "have modules_to_save ['lm_head']"),
        ({"layers_to_transform": 0}, "have layers_to_transform 0"),
        ({"layer_replication": [[0, 2]]}, "have layer_replication [[0, 2]]"),
        ({"init_lora_weights": "pissa"}, "have init_lora_weights pissa"),
        ({"what_comes_next": 1}, "have what_comes_next 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_adapters_of_another_make_are_refused_by_name(folder: Path, change: dict[str, Any], said: str) -> None:
    configure(folder, **change)
    with pytest.raises(RunError) as raised:
        read_foreign_adapters(folder, LORA, SHAPES)
    assert f"model.lora.path: the adapters in '{folder}' {said}" in str(raised.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({NAME: (1, 8)}, f"'{NAME}' has the shape [1, 8] there, and [3, 8] in 'model.path'"),
        ({NAME: (3, 9)}, f"'{NAME}' has the shape [3, 9] there, and [3, 8] in 'model.path'"),
        ({NAME: None}, f"'{NAME}' has the shape None there, and [3, 8] in 'model.path'"),
        ({NAME.replace("0", "2"): (3, 8)}, "layers.2.q_proj.lora_A' has the shape [3, 8] there, and None in"),
    ],
    ids=["one row for all", "another width", "missing", "another layer"],
)
def test_adapters_of_another_model_are_refused_before_any_is_copied(
    folder: Path, changed: dict[str, Any], said: str
) -> None:
    shapes = {name: shape for name, shape in {**SHAPES, **changed}.items() if shape is not None}
    tensors = {peft_name(name): torch.ones(shape) for name, shape in shapes.items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    with pytest.raises(RunError) as raised:
        read_foreign_adapters(folder, LORA, SHAPES)
    assert "are of another model: " in str(raised.value)
    assert said in str(raised.value)


@pytest.mark.parametrize("text", ["{", "[" * 100_000], ids=["no JSON", "nested too deeply"])
def test_a_folder_without_readable_adapters_is_told(folder: Path, text: str) -> None:
    (folder / "adapter_config.json").write_text(text)
    for path in (folder, folder / "elsewhere"):
        with pytest.raises(RunError, match="holds no LoRA adapters as PEFT writes them"):
            read_foreign_adapters(path, LORA, SHAPES)
