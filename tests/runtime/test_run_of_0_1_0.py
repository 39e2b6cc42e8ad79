"""A run folder of version 0.1.0, killed after its fourth step with a batch in hand: resumed, evaluated, exported."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import tokenizers  # noqa: F401 - engines are needed, and this is the quickest to ask for

STORED = Path(__file__).with_name("stored") / "run-0.1.0.tar.gz"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(STORED) as stored:
        stored.extractall(tmp_path, filter="data")
    manifest = tmp_path / "runs/small/manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"recipe_folder": str(tmp_path)}))
    return tmp_path


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "runs/small/metrics.jsonl").read_text().splitlines()]


@pytest.mark.heavy
def test_it_is_resumed_evaluated_and_exported(engines: Any, folder: Path) -> None:
    before = rows(folder)
    assert [row["total_step"] for row in before] == [1, 2, 3, 4, 4, 5]
    assert list(folder.glob("runs/small/checkpoints/step-4/batches.npz"))
    for words in (("run", "runs/small", "--resume"), ("eval", "runs/small"), ("export", "runs/small", "model")):
        done = engines.run("-m", "agym", *words, cwd=folder)
        assert done.returncode == 0, (words, done.stdout + done.stderr)
    after = rows(folder)
    assert after[:5] == before[:5]
    assert [row["total_step"] for row in after] == [1, 2, 3, 4, 4, 5, 6, 7, 7]
    assert {"rollout/staleness", "train/kl", "timing_s/update"} <= after[5].keys()
    assert (folder / "model/model.safetensors").is_file()
