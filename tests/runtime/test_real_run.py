"""The whole of it with real engines, small: killed between two steps and resumed, the rows are the same."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import tokenizers  # noqa: F401 - engines are needed, and this is the quickest to ask for

from ..engine_server import EngineServer, Process

RECIPE = """
agym: 1
name: small
model: {init: {layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {kind: word, vocab: 320}}}
environments: {textcraft: {use: textcraft, options: {world: small, terse: true}}}
agent: {format: plain, tokens_per_turn: 8, context_tokens: 192}
algorithm: {use: grpo, group_size: 4, groups_per_step: 4, groups_per_update: 2, lr: 1e-3, kl: {coef: 0.01},
            filter: size > 0}
reward: score - 0.1 * invalid_turns
schedule:
  - {stage: imitate, until: step >= 2, algorithm: {use: sft, batch_size: 16, lr: 1e-2, data: {limit: 60}}}
  - {stage: exploit, turns: 3, until: step >= 5}
eval: {every: 4, at_start: false, limit: 8, turns: 3}
checkpoint: {every: 2}
"""


RUN = ("-m", "agym", "run", "recipe.yaml")


def finished(process: Process) -> None:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out[-3000:]


def rows(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.glob("runs/small/metrics.jsonl")
    read = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    return [{key: row[key] for key in row if not key.startswith(("time", "timing_s/", "perf/"))} for row in read]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("algorithm", "staleness", "made", "ages"),
    [("grpo", 0, 3, []), ("grpo", 1, 6, [0, 1, 1, 1, 1]), ("ppo", 0, 5, []), ("bilevel_ppo", 1, 6, [0, 1, 1, 1, 1])],
)
def test_killed_and_resumed_a_real_run_writes_the_same_rows(
    engines: EngineServer,
    other_engines: EngineServer,
    tmp_path: Path,
    algorithm: str,
    staleness: int,
    made: int,
    ages: list[int],
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
        recipe = RECIPE.replace("use: grpo", f"use: {algorithm}")
        (folder / "recipe.yaml").write_text(f"{recipe}hardware: {{staleness: {staleness}}}\n")
    process = engines.start(*RUN, cwd=killed)
    deadline = time.monotonic() + 200
    while not list(killed.glob("runs/small/metrics.jsonl")) or len(rows(killed)) < made:
        assert process.poll() is None, process.communicate()[0][-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(rows(killed)) < 9
    assert bool(list(killed.glob("runs/small/checkpoints/*/batches.npz"))) == (staleness > 0)
    finished(engines.start(*RUN, "--resume", cwd=killed))
    finished(other_engines.start(*RUN, cwd=whole))
    assert [row["total_step"] for row in rows(whole)] == [1, 2, 3, 4, 4, 5, 6, 7, 7]
    assert rows(killed) == rows(whole)
    assert any(row.get("train/grad_norm", 0) > 0 for row in rows(whole)[3:])
    assert any(row.get("critic/grad_norm", 0) > 0 for row in rows(whole)[3:]) == (algorithm != "grpo")
    assert [row["rollout/staleness"] for row in rows(whole) if "rollout/staleness" in row] == ages
    drift = [row["mismatch/kl"] for row in rows(whole) if "mismatch/kl" in row]
    assert drift[0] < 1e-6
    assert max(drift) < 1
