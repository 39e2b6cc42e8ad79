"""SmolLM2 from the package index to an agent that is exported: as the README says it, with a run of few steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers  # noqa: F401 - engines are needed, and this is the quickest to ask for
from agym.runtime.backends.engine_variables import missing_variables

pytest.importorskip("gguf")
pytestmark = pytest.mark.heavy

SHORT = {
    "schedule.0.until": "step >= 2",
    "schedule.0.algorithm.data.limit": "8",
    "schedule.1.until": "step >= 2",
    "algorithm.groups_per_step": "2",
    "algorithm.groups_per_update": "2",
    "algorithm.group_size": "4",
    "eval.limit": "2",
    "hardware.threads": "1",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cache of its own."""
    return tmp_path_factory.mktemp("home")


def agym(home: Path, *words: str) -> str:
    """Run a command in a process of its own, with engines of its own."""
    environ = {**missing_variables(os.environ, threads=1, cpu=True), "XDG_CACHE_HOME": str(home / "cache")}
    command = [sys.executable, "-m", "agym", *words]
    done = subprocess.run(
        command, cwd=home, env={**os.environ, **environ}, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def model(home: Path) -> Path:
    folder = Path(agym(home, "models", "get", "smollm2").strip())
    assert folder == home / "cache/agym/models/smollm2"
    assert list((folder.parent / "downloads").iterdir()) == []
    return folder


def test_the_model_is_a_tied_bf16_chat_model_that_adds(model: Path) -> None:
    from agym.runtime.pretrained.chat import ReplySettings, load_chat_model

    config = json.loads((model / "config.json").read_text())
    assert (config["tie_word_embeddings"], config["dtype"], config["vocab_size"]) == (True, "bfloat16", 49152)
    assert (model / "model.safetensors").stat().st_size == 269_060_552
    chat, settings = load_chat_model(model), ReplySettings(tokens=24, temperature=0.0)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    pieces = list(chat.reply(asked, settings))
    assert "Paris" in "".join(pieces)
    assert len(pieces) > 3
    assert pieces == list(chat.reply(asked, settings))


def test_a_short_run_learns_and_its_export_is_loaded_by_others(model: Path, home: Path) -> None:
    from agym.runtime.backends.lora import read_adapters
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    settings = [word for key, value in SHORT.items() for word in ("--set", f"{key}={value}")]
    agym(home, "run", "smollm2/babyai", *settings)
    root = home / "runs/smollm2-babyai"
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    assert sum(row.get("train/updates", 0) for row in rows) >= 3
    pretrained = json.loads((root / "manifest.json").read_text())["pretrained"]
    assert pretrained["name"] == "smollm2"

    agym(home, "export", "runs/smollm2-babyai", "out")
    card = (home / "out/README.md").read_text()
    assert "base_model: HuggingFaceTB/SmolLM2-135M-Instruct\n" in card
    assert "license: apache-2.0\n" in card
    assert "## System prompt" in card
    weights = load_file(home / "out/model.safetensors")
    assert weights.keys() == load_file(model / "model.safetensors").keys()
    assert AutoModelForCausalLM.from_pretrained(home / "out").config.tie_word_embeddings
    adapter = json.loads((home / "out/adapter/adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == str(model)
    assert any(
        tensor.abs().max() > 0 for name, tensor in read_adapters(home / "out/adapter").items() if "lora_B" in name
    )


def test_an_arm_of_the_horizon_study_grows_its_horizon_and_is_evaluated_at_the_longest(model: Path, home: Path) -> None:
    short = {**SHORT, **{f"schedule.{at}.until": "step >= 1" for at in range(4)}, "eval.every": "1"}
    short |= {"algorithm.group_size": "2", "eval.limit": "1", "agent.tokens_per_turn": "8"}
    settings = [word for key, value in short.items() for word in ("--set", f"{key}={value}")]
    agym(home, "run", "studies/scaling-inter-smollm2", "--run", "1", *settings)
    (metrics,) = (home / "runs").glob("scaling-inter-smollm2--*/metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [row["horizon/turns"] for row in rows if "rollout/success" in row] == [4, 8, 12]
    assert [row["total_step"] for row in rows if "eval/success" in row] == [1, 2, 3, 4]
