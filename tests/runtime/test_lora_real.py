"""Adapters through a whole run with the real engines: imitation, RL without a critic and with one, preferences."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers  # noqa: F401 - engines are needed, and this is the quickest to ask for

from ..engine_server import EngineServer, Process

pytestmark = pytest.mark.heavy

RECIPE = """
agym: 1
name: small
model: {init: {layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {kind: word, vocab: 128}},
        lora: {rank: 32, alpha: 64}}
environments: {counter: counter}
agent: {format: plain, tokens_per_turn: 4, context_tokens: 256}
algorithm: {use: grpo, group_size: 4, groups_per_step: 8, lr: 1e-4, kl: {coef: 0.01, reference: stage}}
schedule:
  - {stage: imitate, until: step >= 30, algorithm: {use: sft, batch_size: 32, lr: 1e-2, data: {limit: 240}}}
  - {stage: explore, turns: 8, until: step >= 4}
  - {stage: judge, turns: 8, until: step >= 3, algorithm: {use: ppo, kl: {reference: start}}}
  - {stage: prefer, turns: 8, until: step >= 3, algorithm: {use: dpo, lr: 1e-4}}
  - {stage: rank, turns: 8, until: step >= 4,
     algorithm: {use: turn_dpo, groups_per_step: 4, batch_size: 8, lr: 1e-5, preference: {candidates: 2},
                 critic: {lr: 1e-3}}}
eval: {every: 30, turns: 8, samples: 4}
checkpoint: {every: 6}
"""
STAGES = ("imitate", "explore", "judge", "prefer", "rank")


RUN = ("-m", "agym", "run", "recipe.yaml")


def start(engines: EngineServer, folder: Path, *words: str) -> Process:
    folder.mkdir(exist_ok=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    return engines.start(*RUN, *words, cwd=folder)


def finished(process: Process) -> None:
    out, _ = process.communicate(timeout=560)
    assert process.returncode == 0, out[-3000:]


def rows(folder: Path) -> list[dict[str, Any]]:
    file = folder / "runs/small/metrics.jsonl"
    read = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")] if file.exists() else []
    return [{key: row[key] for key in row if not key.startswith(("time", "timing_s/", "perf/"))} for row in read]


@pytest.fixture(scope="module")
def whole(other_engines: EngineServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    finished(start(other_engines, folder))
    return folder


def test_every_kind_of_stage_learns_by_the_same_adapters(whole: Path) -> None:
    steps = [row for row in rows(whole) if "step" in row]
    imitate, explore, judge, prefer, rank = ([row for row in steps if row["stage"] == name] for name in STAGES)
    assert [len(each) for each in (imitate, explore, judge, prefer, rank)] == [30, 4, 3, 3, 4]
    assert all(row["train/grad_norm"] > 0 for row in steps if row["train/updates"])
    assert sum(row["train/updates"] > 0 for row in steps) > 40
    assert imitate[-1]["train/loss"] < 0.5 * imitate[0]["train/loss"]
    untaught, taught, last = [row["eval/success"] for row in rows(whole) if "eval/success" in row]
    assert untaught < min(taught, last)
    # what is measured from the stage's start begins at nothing, from the run's start it does not
    assert abs(explore[0]["train/kl"]) < 1e-8
    assert judge[0]["train/kl"] > 1e-3
    assert all(row["critic/grad_norm"] > 0 for row in (*judge, *rank))
    drift = [row["mismatch/kl"] for row in (*explore, *judge) if "mismatch/kl" in row]
    assert drift
    assert max(drift) < 1e-5


def test_killed_and_resumed_it_writes_the_same_rows(engines: EngineServer, tmp_path: Path, whole: Path) -> None:
    killed = tmp_path / "killed"
    process = start(engines, killed)
    # once when a critic is in the last checkpoint, and once when a critic that ranks is
    for last in (37, 43):
        deadline = time.monotonic() + 400
        while not any(row["total_step"] >= last for row in rows(killed)):
            assert process.poll() is None, process.communicate()[0][-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert len(rows(killed)) < len(rows(whole))
        process = start(engines, killed, "--resume")
    finished(process)
    assert rows(killed) == rows(whole)


def test_workers_of_ray_write_the_same_rows(engines: EngineServer, tmp_path: Path, whole: Path) -> None:
    pytest.importorskip("ray")
    finished(start(engines, tmp_path / "ray", "--set", "hardware.launcher=ray"))
    assert rows(tmp_path / "ray") == rows(whole)


def test_what_it_exports_is_measured_as_it_was(engines: EngineServer, tmp_path: Path, whole: Path) -> None:
    def agym(*words: str) -> None:
        done = engines.run("-m", "agym", *words, cwd=whole)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]

    agym("export", "runs/small", str(tmp_path / "model"))
    assert {"adapter_config.json", "adapter_model.safetensors"} == {
        file.name for file in (tmp_path / "model/adapter").iterdir()
    }
    agym("eval", "runs/small", "--output", str(tmp_path / "measured.json"))
    measured = json.loads((tmp_path / "measured.json").read_text())["results"]
    last = [row for row in rows(whole) if "eval/success" in row][-1]
    assert measured["eval/success"] == pytest.approx(last["eval/success"])
