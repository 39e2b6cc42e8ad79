"""An agent in a process of its own, trained with real engines: its tokens are those that were drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers  # noqa: F401 - engines are needed, and this is the quickest to ask for

from ...engine_server import EngineServer
from ..conftest import episodes_of

RECIPE = """\
agym: 1
name: small
model: {{init: {{layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {{kind: word, vocab: 320}}}}}}
environments: {{textcraft: {{use: textcraft, options: {{world: small, terse: true}}}}}}
agent: {{format: plain, tokens_per_turn: 8, context_tokens: 192}}
algorithm: {{use: grpo, group_size: 4, groups_per_step: 2, lr: 1e-3, kl: {{coef: 0}}}}
reward: score - 0.1 * invalid_turns - 0.01 * sampled_tokens
schedule:
  - {{stage: imitate, until: step >= 10, algorithm: {{use: sft, batch_size: 16, lr: 1e-2, data: {{limit: 160}}}}}}
  - {{stage: practise, turns: 3, until: step >= 2, agent: {{harness: {{command: [python, {script}], timeout_s: 600}}}}}}
eval: null
checkpoint: {{every: 100, export: false, episodes: all}}
"""
SCRIPT = Path(__file__).resolve().parents[3] / "recipes/harness/plain.py"


@pytest.mark.heavy
def test_a_plain_script_is_trained_on_the_tokens_that_it_caused(engines: EngineServer, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(script=SCRIPT))
    done = engines.run("-m", "agym", "run", "recipe.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    root = tmp_path / "runs/small"
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    practised = [row for row in rows if row["stage"] == "practise"]
    assert [row["rollout/episodes"] for row in practised] == [8, 8]
    updated = [row["mismatch/ratio_error"] for row in practised if "train/loss" in row]
    assert updated
    assert max(updated) < 1e-3
    episodes = [each for file in episodes_of(root).values() for each in file if each["stage"] == "practise"]
    assert len(episodes) == 16
    for episode in episodes:
        drawn = sum(sum(segment["sampled"]) for segment in episode["segments"])
        assert drawn == episode["harness"]["completion_tokens"] == episode["sampled_tokens"] > 0
        assert (root / episode["harness"]["log"]).is_file()
