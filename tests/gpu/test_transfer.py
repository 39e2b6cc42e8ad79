"""Weights from the learner's process to the sampler's, by the GPU: CUDA IPC on a shared card, NCCL to another one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the engines: pip install '.[cuda]'")
pytest.importorskip("ray")

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; `agym doctor` says what is found"),
]
RECIPE = """
agym: 1
name: transfer
extends: quickstart
model: {dtype: bf16}
algorithm: {groups_per_step: 4, groups_per_update: 4}
schedule:
  - {stage: imitate, until: step >= 4, algorithm: {use: sft, batch_size: 8, data: {source: expert, limit: 32}}}
  - {stage: play, turns: 4, until: step >= 4}
eval: null
hardware: {threads: null, gpu_memory_gb: 40, launcher: ray}
"""


@pytest.mark.parametrize(("gpus", "layout"), [(1, "colocated"), (2, "split")], ids=["ipc", "nccl"])
def test_a_run_proves_every_version_that_a_gpu_sent(tmp_path: Path, gpus: int, layout: str) -> None:
    if torch.cuda.device_count() < gpus:
        pytest.skip(f"needs {gpus} CUDA devices")
    recipe = tmp_path / "transfer.yaml"
    recipe.write_text(RECIPE)
    hardware = [f"hardware.gpus_per_node={gpus}", f"hardware.layout={layout}"]
    settings = [part for each in (f"output={tmp_path / 'runs'}", *hardware) for part in ("--set", each)]
    command = [sys.executable, "-m", "agym", "run", str(recipe), *settings]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr[-3000:]
    (metrics,) = (tmp_path / "runs").rglob("metrics.jsonl")
    assert len([json.loads(line) for line in metrics.read_text().splitlines()]) == 8
