"""Sampler and learner on one GPU, in bf16: they agree, hand weights over, and make room for each other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the engines: pip install '.[cuda]'")

# pytest has it there
sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
from gpu import run_part  # noqa: E402
from gpu_parts import PARTS  # noqa: E402


@pytest.mark.heavy
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; `agym doctor` says what is found")
@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_the_bench_keeps_its_bounds_on_this_device(name: str, tmp_path: Path) -> None:
    rows: list[Any] = []
    assert run_part(name, "mini", "cuda", tmp_path, rows.append, limit_s=600), rows
