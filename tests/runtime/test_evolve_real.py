"""Evolving and relay with the real engines: what a round begins with, exactly; and that a small agent gets better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers  # noqa: F401 - engines are needed, and this is the quickest to ask for

from ..engine_server import EngineServer
from .conftest import rows_of, trained

RECIPE = """
agym: 1
name: evolving
model: {init: {layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {kind: word, vocab: 128}}, lora: LORA}
environments: {counter: counter}
agent: {format: plain, tokens_per_turn: 4, context_tokens: 256}
schedule:
  - {stage: imitate, until: step >= 30,
     algorithm: {use: relay, batch_size: 16, lr: 5e-3, data: {limit: 60, noise: 0.5}}}
  - {stage: evolve, turns: 8,
     algorithm: {use: agent_evol, batch_size: 32, groups_per_step: 16, lr: 2e-3, epochs: 2, data: {limit: 32},
                 evolve: {rounds: ROUNDS, samples: 4, keep: KEEP}}}
eval: null
"""


def evolved(
    engines: EngineServer, folder: Path, rounds: int, keep: str, lora: str = "null"
) -> tuple[list[dict[str, Any]], bytes]:
    """The rows of a run, and the weights that it ends with."""
    folder.mkdir()
    recipe = RECIPE.replace("ROUNDS", str(rounds)).replace("KEEP", keep).replace("LORA", lora)
    run = trained(engines, folder, recipe)
    rows = rows_of(run)
    (weights,) = (run / "checkpoints" / f"step-{len(rows)}" / "model").glob("*.safetensors")
    return rows, weights.read_bytes()


@pytest.mark.heavy
@pytest.mark.parametrize("lora", ["null", "{rank: 16, dropout: 0.1}"])
def test_retraining_from_the_base_is_training_from_it_bit_for_bit(
    engines: EngineServer, tmp_path: Path, lora: str
) -> None:
    rows, once = evolved(engines, tmp_path / "once", 1, "turns < 0", lora)
    assert rows[0]["data/demonstrations"] > 60
    later, thrice = evolved(engines, tmp_path / "thrice", 3, "turns < 0", lora)
    assert [row["data/kept"] for row in later if row["stage"] == "evolve"] == [0, 0, 0]
    assert once == thrice


@pytest.mark.heavy
def test_what_is_explored_is_kept_and_trained_on(engines: EngineServer, tmp_path: Path) -> None:
    rows, _ = evolved(engines, tmp_path / "evolving", 3, "success")
    rounds = [row for row in rows if row["stage"] == "evolve"]
    assert [row["evolve/round"] for row in rounds] == [1, 2, 3]
    assert [row["data/kept"] for row in rounds] == [round(64 * row["rollout/success"]) for row in rounds]
    assert all(row["train/updates"] == 2 * -(-(32 + row["data/kept"]) // 32) for row in rounds)
    assert rounds[-1]["rollout/success"] > rounds[0]["rollout/success"]
