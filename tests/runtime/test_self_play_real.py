"""Self-play with real engines: a pool of the policy, its earlier checkpoints and chance, in one short run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import textarena  # noqa: F401 - the games are needed, and this is the quickest to ask for
import tokenizers  # noqa: F401 - engines are needed, and this is the quickest to ask for

from ..engine_server import EngineServer
from .conftest import episodes_of

RECIPE = """
agym: 1
name: small
model: {init: {layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {kind: word, vocab: 200}}}
environments:
  duel:
    use: textarena
    options: {game: Nim-v0, show: board, seeds: 60, opponent: [policy, earlier, random]}
agent: {format: plain, tokens_per_turn: 8, context_tokens: 384}
algorithm: {use: grpo, group_size: 4, groups_per_step: 6, lr: 1e-3}
schedule:
  - {stage: imitate, until: step >= 6, algorithm: {use: sft, batch_size: 8, lr: 1e-2, data: {limit: 40, loss_on: all}}}
  - {stage: duel, turns: 8, until: step >= 4}
eval: null
checkpoint: {every: 3, keep: 2, episodes: all}
guards: {mismatch_max: 1e-5}
"""


@pytest.mark.heavy
def test_a_run_trains_against_itself_and_its_earlier_checkpoints(engines: EngineServer, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    done = engines.run("-m", "agym", "run", "recipe.yaml", cwd=tmp_path, timeout=550)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    root = tmp_path / "runs/small"
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    learnt = [row for row in rows if row.get("stage") == "duel" and "mismatch/ratio_error" in row]
    assert max(row["mismatch/ratio_error"] for row in learnt) < 1e-3
    assert any("rollout/against_policy/success" in row for row in learnt)
    played = [each for file in episodes_of(root).values() for each in file if each["stage"] == "duel"]
    by_opponent = {
        opponent: [each for each in played if each["task"]["difficulty"] == opponent]
        for opponent in ("policy", "earlier", "random")
    }
    assert not any("seats" in each for each in by_opponent["random"])
    # an agent that loses by its own mistakes before the other's first turn has played against nobody
    met = {
        opponent: [each for each in episodes if "seats" in each and each["ending"] != "uncontested"]
        for opponent, episodes in by_opponent.items()
    }
    assert met["policy"]
    assert met["earlier"]
    for each in met["policy"]:
        (seat,) = each["seats"]
        newest = max(version for segment in each["segments"] for version in segment["versions"])
        assert (seat["model"], seat["version"]) == ("policy", newest)
    for each in met["earlier"]:
        (seat,) = each["seats"]
        newest = max(version for segment in each["segments"] for version in segment["versions"])
        assert seat["model"] == "earlier"
        assert 0 <= seat["version"] < newest
    for each in played:
        sampled = sum(sum(segment["sampled"]) for segment in each["segments"])
        assert sampled == each["sampled_tokens"] == sum(turn["end"] - turn["start"] for turn in each["turns"])
