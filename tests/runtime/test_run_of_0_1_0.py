"""A run folder of version 0.1.0, killed after its fourth step with a batch in hand: resumed, evaluated, exported."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable
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


class Gadget:
    """A pickle that leaves a mark where it is loaded."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self._mark),)


@pytest.mark.heavy
def test_a_pickle_that_would_run_code_is_refused_by_what_it_names(engines: Any, folder: Path) -> None:
    import torch

    run, mark = folder / "runs/small", folder / "mark"
    torch.save({"module": Gadget(mark)}, run / "checkpoints/step-4/learner/mp_rank_00_model_states.pt")
    for place in ("references/exploit", "model", "checkpoints/step-4/model"):
        torch.save(Gadget(mark), run / place / "pytorch_model.bin")
        (run / place / "modeling_x.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    for words in (("eval", "runs/small"), ("export", "runs/small", "model"), ("run", "recipe.yaml", "--resume")):
        done = engines.run("-m", "agym", *words, cwd=folder)
        assert done.returncode == 3, (words, done.stdout + done.stderr)
        assert "modeling_x.py: code, which runs only with 'model.trust_remote_code'" in done.stderr
    for file in (*run.glob("*/modeling_x.py"), *run.glob("*/pytorch_model.bin")):
        file.unlink()
    (run / "start/checkpoint.json").unlink()
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"format": 1}))
    done = engines.run("-m", "agym", "run", "recipe.yaml", "--resume", cwd=folder)
    assert (done.returncode, "names 'posix.mkdir', which no checkpoint of agym does" in done.stderr) == (3, True)
    assert not mark.exists()
