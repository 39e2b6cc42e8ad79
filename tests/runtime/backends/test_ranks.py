"""Two ranks take the step that one takes, however unevenly the sequences are shared out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from agym.dsl.model.recipe import Lora
from packing import make_tiny_model
from safetensors.torch import load_file

from ...engine_server import EngineServer
from .conftest import REAL

pytestmark = REAL


def result(engines: EngineServer, folder: Path, ranks: int, model: Path, zero: int, lora: int) -> dict[str, Any]:
    folder.mkdir()
    script = Path(__file__).with_name("one_rank.py")
    started = [
        engines.start(script, str(rank), str(ranks), folder / "store", model, str(zero), str(lora), folder / "result")
        for rank in range(ranks)
    ]
    for process in started:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, out
    return torch.load(folder / "result", weights_only=False)


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize("zero", [0, 2, 3])
def test_two_ranks_take_the_step_that_one_takes(
    engines: EngineServer, tmp_path: Path, model: Path, learner: Any, zero: int, lora: int
) -> None:
    one, two = (result(engines, tmp_path / str(ranks), ranks, model, zero, lora) for ranks in (1, 2))
    for alone, shared in zip(one["metrics"], two["metrics"], strict=True):
        assert shared.fault is None
        assert (shared.tokens, shared.sequences) == (alone.tokens, alone.sequences)
        for name in ("loss", "entropy", "grad_norm", "ratio_error", "sampler_kl"):
            assert getattr(shared, name) == pytest.approx(getattr(alone, name), rel=1e-5, abs=1e-6)
    for name, tensor in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], tensor, rtol=0, atol=2e-5)
    assert two["scored"] == pytest.approx(one["scored"], abs=1e-4)
    for alone, shared in zip(one["valuing"], two["valuing"], strict=True):
        assert shared.fault is None
        assert (shared.loss, shared.clipped) == pytest.approx((alone.loss, alone.clipped), rel=1e-4, abs=1e-6)
        assert shared.grad_norm == pytest.approx(alone.grad_norm, rel=1e-3)
    assert two["values"] == pytest.approx(one["values"], abs=1e-4)
    assert abs(one["values"]).max() > 1e-3
    # what two ranks saved is loaded by two, and by one under another stage
    alone = learner(zero=(zero + 1) % 4, lora=Lora(rank=lora) if lora else None)
    alone.load(tmp_path / "2/first")
    alone.save(tmp_path / "alone")
    first, again, other = (saved(tmp_path / name) for name in ("2/first", "2/again", "alone"))
    assert first.keys() == again.keys() == other.keys()
    assert any(name.startswith("exp_avg_sq/") for name in first)
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name]), name
        assert torch.equal(tensor, other[name]), name


def test_two_ranks_of_a_model_with_convolutions_choose_the_rows_that_one_chooses(
    engines: EngineServer, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    make_tiny_model("lfm2", vocab_size=300).save_pretrained(model)
    one, two = (result(engines, tmp_path / str(ranks), ranks, model, 3, 0) for ranks in (1, 2))
    assert "'Lfm2ShortConv' would mix several" in one["notes"][0]
    assert two["notes"] == one["notes"]
    # a row for each sequence
    assert [metrics.micro_batches for metrics in one["metrics"]] == [13, 13]
    assert two["scored"] == pytest.approx(one["scored"], abs=1e-4)


def saved(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = folder.glob("learner/*.safetensors")
    return load_file(file)
