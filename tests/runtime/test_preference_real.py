"""Preferences with the real engines: a small policy that wanders learns from pairs of its own episodes."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
import tokenizers  # noqa: F401 - engines are needed, and this is the quickest to ask for

from ..engine_server import EngineServer
from .conftest import rows_of, trained

RECIPE = """
agym: 1
name: pairs
model: {init: {layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {kind: word, vocab: 128}}}
environments: {counter: {use: counter, options: {largest: 4}}}
agent: {format: plain, tokens_per_turn: 4, context_tokens: 256}
schedule:
  - {stage: imitate, until: step >= 80,
     algorithm: {use: sft, batch_size: 16, lr: 5e-3, data: {limit: 200, noise: 0.8, loss_on: actions}}}
  - {stage: rank, turns: 8, until: step >= 3,
     algorithm: {use: turn_dpo, group_size: 4, groups_per_step: 4, batch_size: 8, lr: 1e-5,
                 preference: {candidates: 2}, critic: {lr: 1e-3, epochs: 2}}}
  - {stage: prefer, turns: 8, until: step >= 12,
     algorithm: {use: dpo, group_size: 8, groups_per_step: 8, batch_size: 8, lr: 6e-4}}
eval: {every: 999, at_start: false, at_end: false, turns: 8}
"""


@pytest.mark.heavy
def test_pairs_of_its_own_episodes_make_a_wanderer_go_somewhere(engines: EngineServer, tmp_path: Path) -> None:
    rows = rows_of(trained(engines, tmp_path, RECIPE))
    ranked = [row for row in rows if row["stage"] == "rank"]
    assert all(row["critic/pairs"] and row["preference/pairs"] and row["train/updates"] for row in ranked)
    assert all(row["critic/grad_norm"] > 0 for row in ranked)
    pairs = [row for row in rows if row["stage"] == "prefer"]
    assert pairs[0]["train/updates"] == -(-pairs[0]["preference/pairs"] // 8) > 0
    assert fmean(row["rollout/success"] for row in pairs[-4:]) > 0.9 > pairs[0]["rollout/success"] + 0.1
