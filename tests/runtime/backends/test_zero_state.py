"""State of the learner in a checkpoint: whole tensors by name, the same under each ZeRO stage and number of ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from agym.dsl.model.recipe import DType, Lora
from agym.runtime.backends.checkpoint.zero_state import load_state, save_state
from agym.runtime.errors import RunError
from agym.runtime.protocols import OptimizerSettings, TrainSequence, UpdateSettings
from safetensors.torch import load_file

from .conftest import REAL

pytestmark = REAL

STEP = UpdateSettings(lr=1e-3)
DECAY = OptimizerSettings(weight_decay=0.01)
Make = Callable[..., object]
Sequences = Callable[..., list[TrainSequence]]


def saved(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("zero", "others"), [(0, {}), (1, {"dtype": DType.BF16}), (2, {}), (3, {}), (3, {"dtype": DType.BF16})]
)
@pytest.mark.parametrize("lora", [None, Lora(rank=4)])
def test_a_learner_goes_on_from_what_another_saved_bit_for_bit(
    tmp_path: Path, learner: Make, sequences: Sequences, zero: int, others: dict[str, DType], lora: Lora | None
):
    settings = {"zero": zero, "optimizer": DECAY, "lora": lora, **others}
    one, other = learner(**settings), learner(**settings)
    one.update(sequences(0), STEP)
    one.save(tmp_path / "first")
    other.load(tmp_path / "first")
    other.save(tmp_path / "again")
    assert same(saved(tmp_path / "first/learner"), saved(tmp_path / "again/learner"))
    metrics = [each.update(sequences(1), STEP) for each in (one, other)]
    assert metrics[0] == metrics[1]
    for each, name in ((one, "one"), (other, "other")):
        each.save(tmp_path / name)
    assert same(saved(tmp_path / "one/learner"), saved(tmp_path / "other/learner"))
    one.load(tmp_path / "first")  # as a roll-back does
    one.save(tmp_path / "rolled-back")
    assert same(saved(tmp_path / "first/learner"), saved(tmp_path / "rolled-back/learner"))


def test_state_of_each_stage_is_loaded_under_each_other(tmp_path: Path, learner: Make, sequences: Sequences):
    engines = {zero: learner(zero=zero, optimizer=DECAY) for zero in (0, 1, 2, 3)}
    engines[0].update(sequences(0), STEP)
    engines[0].save(tmp_path / "0")
    first = saved(tmp_path / "0/learner")
    before = "0"
    for zero in (1, 3, 2, 0, 3):
        engines[zero].load(tmp_path / before)
        before = f"{before}-{zero}"
        engines[zero].save(tmp_path / before)
        assert same(saved(tmp_path / before / "learner"), first)
    state = json.loads((tmp_path / before / "learner/state.json").read_text())
    assert set(state["steps"].values()) == {1}


def test_state_in_small_files_is_the_same(tmp_path: Path, learner: Make, sequences: Sequences):
    engine = learner()
    engine.update(sequences(0), STEP)
    save_state(engine._engine, tmp_path / "one")
    save_state(engine._engine, tmp_path / "many", shard_bytes=100_000)
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 5
    assert same(saved(tmp_path / "one"), saved(tmp_path / "many"))
    load_state(engine._engine, tmp_path / "many")


def test_saved_before_the_first_update_it_begins_anew(tmp_path: Path, learner: Make, sequences: Sequences):
    one, other = learner(zero=2), learner(zero=3)
    one.save(tmp_path)
    metrics = one.update(sequences(0), STEP)
    other.update(sequences(1), STEP)
    other.load(tmp_path)
    assert other.update(sequences(0), STEP).grad_norm == pytest.approx(metrics.grad_norm, rel=1e-6)


def test_state_of_another_model_is_refused_by_the_name_of_a_tensor(tmp_path: Path, learner: Make):
    learner(lora=Lora(rank=4)).save(tmp_path / "adapters")
    learner(lora=Lora(rank=8)).save(tmp_path / "wider")
    with pytest.raises(RunError, match=r"holds the tensor '.*lora_A', which the model lacks"):
        learner().load(tmp_path / "adapters")
    with pytest.raises(RunError, match=r"tensor 'weight/.*lora_A' is torch.float32 \[8, 192\], the model has"):
        learner(lora=Lora(rank=4)).load(tmp_path / "wider")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state.json", b"{"),
        ("state.json", b'{"version": 1, "files": -1, "global_steps": 0, "steps": {}, "loss_scale": {}}'),
        ("state.json", b"[" * 100_000),
        ("state-00001-of-00001.safetensors", b""),
        ("state-00001-of-00001.safetensors", (2**63).to_bytes(8, "little") + b"{}"),
        ("state-00001-of-00001.safetensors", (2).to_bytes(8, "little") + b"{}"),
        (
            "state-00001-of-00001.safetensors",
            (78).to_bytes(8, "little")
            + b'{"generator/torch":{"dtype":"U8","shape":[99999],"data_offsets":[0,99999]}}   ',
        ),
    ],
)
def test_state_that_lies_is_refused_and_runs_nothing(tmp_path: Path, learner: Make, name: str, content: bytes):
    engine = learner()
    engine.save(tmp_path)
    (tmp_path / "learner" / name).write_bytes(content)
    with pytest.raises(RunError, match=r"learner"):
        engine.load(tmp_path)
