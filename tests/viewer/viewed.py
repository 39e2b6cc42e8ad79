"""Run folders for the pages: a long run with one planted failure, a second run, and one whose episodes are hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agym.runtime.storage.episode_reader import EPISODES

from .served import append_lines, episode, evaluation, metrics_row, write_run

STEPS, TASKS = 500, 10
PLANTED_TASK, PLANTED_STEP = "door-7", 400
EVIL = (
    "<script>window.ran = 1</script></script><img src=x onerror='window.ran = 2'>"
    "<svg onload='window.ran = 3'></svg>\u202egnirts\u202c \x1b[31mred\x1b[0m\x00"
)
LONG = "long turn " * 104_858
"""A text of a MiB."""
_WORDS = ("[UNK]", "look", "open", "kick", " door", " key", "\n", ".")


def write_viewed(folder: Path) -> None:
    write_house(folder / "house")
    write_run(folder / "door")
    write_hostile(folder / "hostile")


def write_house(root: Path) -> None:
    """Write 5,000 episodes of ten tasks, all won but those of one task from one step on, which kick the door."""
    rows = [metrics_row(step, **{"train/loss": 1 / step, "horizon/turns": 4.0}) for step in range(1, STEPS + 1)]
    append_lines(root / "metrics.jsonl", *rows, evaluation(STEPS, 0.75))
    append_lines(
        root / "events.jsonl",
        {
            "time": 1000.5,
            "total_step": 200,
            "kind": "guard",
            "text": "the loss was 12 times its mean",
            "action": "skip",
        },
        {"time": 1500.0, "total_step": STEPS, "kind": "end", "text": "", "outcome": "finished"},
    )
    (root / "recipe.yaml").write_text("agym: 1\nname: house\n", encoding="utf-8")
    append_lines(root / "plan.json", _plan())
    append_lines(root / "manifest.json", {"agym": "0.2.0", "packages": {"torch": "2.12"}, "started_at": 5.0})
    _write_tokenizer(root)
    episodes = (played(step, task) for step in range(1, STEPS + 1) for task in range(TASKS))
    append_lines(root / EPISODES / "step-000001.jsonl", *episodes)


def played(step: int, task: int, **changes: Any) -> dict[str, Any]:
    """An episode of two turns; those of a step are in groups of two."""
    name = f"door-{task}"
    lost = name == PLANTED_TASK and step >= PLANTED_STEP
    act = "kick" if lost else "open"
    words = [[1, 4, 7], [3 if lost else 2, 4, 7]]
    turns = [
        _turn(0, 2, "look door", "A door, and a key."),
        _turn(5, 7, f"{act} door", "It does not move." if lost else "It is open.", reward=float(not lost)),
    ]
    ids = [0, 0, *words[0], 0, 0, *words[1]]
    sampled = [0, 0, 1, 1, 1, 0, 0, 1, 1, 1]
    segment = {
        "ids": ids, "sampled": sampled, "logprobs": [-0.05 - 0.4 * (at % 5) * each for at, each in enumerate(sampled)],
        "versions": [step - 1 if each else -1 for each in sampled],
        "learner_logprobs": [-0.2 * at * each for at, each in enumerate(sampled)],
    }  # fmt: skip
    return episode(
        id=f"train-{step}-{task}", group=f"train-{step}-{task // 2}", index=task % 2, total_step=step,
        stage="exploit" if step <= 5 else "explore", success=not lost, score=float(not lost),
        ending="horizon" if lost else "done", task={"environment": "house", "id": name, "seed": task, "difficulty": ""},
        training={"reward": float(not lost), "kept": True, "reason": ""}, turns=turns, segments=[segment],
    ) | changes  # fmt: skip


def write_hostile(root: Path) -> None:
    """Write what models and strangers may have written, and a last line that a kill cut off."""
    (turn,) = episode()["turns"]
    evil = episode(
        id="evil", group="evil", index=0, opening=[{"role": "user", "content": EVIL}],
        task={"environment": EVIL, "id": EVIL, "seed": 1, "difficulty": EVIL},
        turns=[{**turn, "reply": EVIL, "action": EVIL, "observation": EVIL, "state": EVIL}],
        segments=[{
            "ids": [1, 2, -5, 4], "sampled": [0, 0, 1, 1], "logprobs": [0, 0, float("nan"), -1], "versions": []
        }],
    )  # fmt: skip
    huge = episode(id="huge", group="huge", index=0, turns=[{**turn, "reply": LONG, "observation": LONG}])
    append_lines(root / "metrics.jsonl", metrics_row(1, **{"rollout/success": float("nan"), EVIL: 1.0}))
    append_lines(root / "events.jsonl", {"time": 1.0, "total_step": 1, "kind": EVIL, "text": EVIL})
    (root / "recipe.yaml").write_text(EVIL.replace("\0", ""), encoding="utf-8")
    _write_tokenizer(root)
    append_lines(root / EPISODES / "step-000001.jsonl", evil, huge)
    with (root / EPISODES / "step-000001.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(episode(id="cut"))[:200])


def _turn(start: int, first: int, reply: str, observation: str, reward: float = 0.0) -> dict[str, Any]:
    (turn,) = episode()["turns"]
    said = {"reply": reply, "action": reply, "observation": observation, "reward": reward}
    return {**turn, **said, "start": start, "end": first + 3, "advantage": [0.5, -0.5, 1.5]}


def _plan() -> dict[str, Any]:
    wire = {"type": "episodes", "previous": False}
    ops = [
        {"id": "rollout", "kind": "rollout", "every": None, "inputs": [{**wire, "op": "update", "previous": True}]},
        {"id": "update", "kind": "grpo", "every": None, "inputs": [{**wire, "op": "rollout"}]},
        {"id": "eval", "kind": "eval", "every": 20, "inputs": [{**wire, "op": "update"}]},
    ]
    return {"stages": [{"settings": {"stage": stage}, "ops": ops} for stage in ("exploit", "explore")]}


def _write_tokenizer(root: Path) -> None:
    parts = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    vocabulary = {word: number for number, word in enumerate(_WORDS)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": _WORDS[0]}
    append_lines(
        root / "start" / "tokenizer.json",
        {"version": "1.0", **dict.fromkeys(parts), "added_tokens": [], "model": model, "decoder": {"type": "Fuse"}},
    )
