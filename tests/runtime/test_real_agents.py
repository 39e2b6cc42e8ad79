"""Agents that call tools, forget, plan and reflect, trained with real engines: both say the same of every token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers  # noqa: F401 - engines are needed, and this is the quickest to ask for

from ..engine_server import EngineServer
from .conftest import episodes_of

RECIPE = """
agym: 1
name: small
model: {init: {layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {kind: word, vocab: 400}}}
environments: {textcraft: {use: textcraft, options: {world: small, terse: true}}}
agent: AGENT
algorithm: {use: grpo, group_size: 4, groups_per_step: 4, lr: 1e-3, filter: size > 0}
reward: score - 0.1 * invalid_turns
schedule:
  - {stage: imitate, until: step >= 8, algorithm: {use: sft, batch_size: 16, lr: 1e-2, data: {limit: 40}}}
  - {stage: exploit, turns: 4, until: step >= 3}
eval: null
checkpoint: {every: 5, episodes: all}
guards: {mismatch_max: 1e-5}
"""
AGENTS = {
    "tools": "{format: tools, parallel_calls: 2, thinking: false, tokens_per_turn: 24, context_tokens: 320}",
    "window": "{format: plain, tokens_per_turn: 8, context_tokens: 320, memory: {kind: window, turns: 1}}",
    "planning and reflection": (
        "{format: plain, tokens_per_turn: 8, context_tokens: 480, planning: {every: 2, tokens: 8}, "
        "reflection: {attempts: 2, tokens: 8}}"
    ),
}


@pytest.mark.heavy
@pytest.mark.parametrize("name", AGENTS)
def test_sampler_and_learner_agree_on_what_such_an_agent_says(engines: EngineServer, tmp_path: Path, name: str) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE.replace("AGENT", AGENTS[name]))
    done = engines.run("-m", "agym", "run", "recipe.yaml", cwd=tmp_path, timeout=550)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    root = tmp_path / "runs/small"
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    learnt = [row for row in rows if row.get("stage") == "exploit" and "mismatch/ratio_error" in row]
    assert len(learnt) == 3
    assert max(row["mismatch/ratio_error"] for row in learnt) < 1e-3
    assert all(row["train/grad_norm"] > 0 for row in learnt)
    episodes = [each for file in episodes_of(root).values() for each in file]
    assert SAYS[name]([each for each in episodes if each["stage"] == "exploit"])


def purposes(episodes: list[Any]) -> set[str]:
    return {turn["purpose"] for each in episodes for turn in each["turns"]}


SAYS = {
    "tools": lambda episodes: any("<tool_call>" in turn["reply"] for each in episodes for turn in each["turns"]),
    "window": lambda episodes: any(len(each["segments"]) > 1 for each in episodes),
    "planning and reflection": lambda episodes: purposes(episodes) == {"act", "plan", "lesson"},
}
