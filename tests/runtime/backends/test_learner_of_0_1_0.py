"""A learner's state as version 0.1.0 saved it, by DeepSpeed itself under each stage: loaded without running any
code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from agym.dsl.model.recipe import DType, Lora
from agym.runtime.backends.checkpoint import pickles
from agym.runtime.errors import RunError
from agym.runtime.protocols import OptimizerSettings, TrainSequence, UpdateSettings

from .conftest import REAL
from .test_zero_state import same, saved

pytestmark = REAL

STEP = UpdateSettings(lr=1e-3)
DECAY = OptimizerSettings(weight_decay=0.01)
Make = Callable[..., object]
Sequences = Callable[..., list[TrainSequence]]


def save_as_0_1_0(learner: object, folder: Path) -> None:
    learner._engine.save_checkpoint(
        str(folder),
        tag="learner",
        client_state={"torch_rng": torch.get_rng_state()},
        save_latest=False,
        exclude_frozen_parameters=True,
    )


@pytest.mark.parametrize(
    ("zero", "others"),
    [(0, {}), (1, {}), (2, {}), (3, {}), (1, {"dtype": DType.BF16}), (3, {"dtype": DType.BF16})],
)
@pytest.mark.parametrize("lora", [None, Lora(rank=4)])
def test_the_next_update_is_bit_for_bit_that_of_the_learner_that_was_saved(
    tmp_path: Path, learner: Make, sequences: Sequences, zero: int, others: dict[str, DType], lora: Lora | None
):
    settings = {"zero": zero, "optimizer": DECAY, "lora": lora, **others}
    one, other = learner(**settings), learner(**settings)
    one.update(sequences(0), STEP)
    save_as_0_1_0(one, tmp_path)
    other.load(tmp_path)
    metrics = [each.update(sequences(1), STEP) for each in (one, other)]
    assert metrics[0] == metrics[1]
    for each, name in ((one, "one"), (other, "other")):
        each.save(tmp_path / name)
    assert same(saved(tmp_path / "one/learner"), saved(tmp_path / "other/learner"))


def test_of_what_may_be_named_nothing_is_missing_and_nothing_too_much(
    tmp_path: Path, learner: Make, sequences: Sequences
):
    named = set[str]()
    for zero in (0, 1, 2, 3):
        for lora in (None, Lora(rank=4)):
            made = learner(zero=zero, lora=lora)
            made.update(sequences(0), STEP)
            save_as_0_1_0(made, tmp_path / f"{zero}-{lora}")
    for file in tmp_path.rglob("*.pt"):
        named |= set(torch.serialization.get_unsafe_globals_in_checkpoint(file))
    assert named == set(pickles._ALLOWED)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_an_optimiser_that_names_anything_else_is_refused(
    tmp_path: Path, learner: Make, sequences: Sequences, zero: int
):
    made = learner(zero=zero)
    made.update(sequences(0), STEP)
    save_as_0_1_0(made, tmp_path)
    (file,) = tmp_path.rglob("*optim_states.pt")
    torch.save({**torch.load(file, weights_only=False), "hook": print}, file)
    with pytest.raises(RunError, match=r"optim_states.pt' names 'builtins.print', which no checkpoint of agym does"):
        made.load(tmp_path)
