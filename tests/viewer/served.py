"""A run folder with metrics, events, a manifest and episodes, and a client that asks the viewer for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agym.runtime.storage.episode_reader import EPISODES
from agym.viewer.runs import Runs
from agym.viewer.server import create_viewer
from starlette.testclient import TestClient

PORT = 4321
TOKEN = "a-token"
BASE = f"http://127.0.0.1:{PORT}"


def client_of(root: Path, cache: Path) -> TestClient:
    application = create_viewer(Runs([root], cache), port=PORT, token=TOKEN)
    return TestClient(application, base_url=BASE, follow_redirects=False)


def ask(client: TestClient, path: str, status: int = 200, **parameters: Any) -> Any:
    """Ask the API; its answer is JSON without NaN."""
    answered = client.get(f"/{TOKEN}/api/{path}", params=parameters or None)
    assert answered.status_code == status, answered.text
    return json.loads(answered.text, parse_constant=lambda name: 1 / 0)


def episode(**changes: Any) -> dict[str, Any]:
    turn = {
        "segment": 0, "start": 2, "end": 4, "reply": "Action: open door", "action": "open door",
        "observation": "It is open.", "reward": 0.5, "state": "", "purpose": "act", "role": "user",
        "seconds": {"sampling": 0.25, "environment": 0.5}, "trained": True, "advantage": [0.5, -0.5],
    }  # fmt: skip
    segment = {
        "ids": [1, 2, 3, 4], "sampled": [0, 0, 1, 1], "logprobs": [0, 0, -1, -2], "versions": [-1, -1, 2, 2],
        "learner_logprobs": [0, 0, -1, -1],
    }  # fmt: skip
    record = {
        "version": 2, "purpose": "train", "total_step": 3, "stage": "explore", "id": "train-3-0-1",
        "group": "train-3-0", "mode": "sampled", "index": 1, "horizon": 4, "ending": "done",
        "task": {"environment": "house", "id": "door-1", "seed": 7, "difficulty": ""},
        "score": 1.0, "success": True, "fault": "", "retries": 0, "seconds": 1.5,
        "sampled_tokens": 2, "total_tokens": 4, "training": {"reward": 0.75, "kept": True, "reason": ""},
        "opening": [{"role": "user", "content": "You see a door."}], "turns": [turn],
        "segments": [segment],
    }  # fmt: skip
    return record | changes


def append_lines(path: Path, *rows: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def metrics_row(step: int, **more: Any) -> dict[str, Any]:
    row = {"total_step": step, "stage": "exploit" if step <= 5 else "explore", "step": step, "time": 1000.0 + step}
    seconds = {"timing_s/rollout": 3.0, "timing_s/update": 1.0, "timing_s/step": 4.5}
    return {**row, "rollout/success": step / 10, "rollout/tokens": 100, **seconds, **more}


def evaluation(step: int, success: float) -> dict[str, Any]:
    head = "eval/house/"
    numbers = {"success": success, "ci_low": success - 0.1, "ci_high": success + 0.1, "tasks": 4.0, "faults": 0.0}
    greedy = {f"{head}greedy_success": 0.25, f"{head}greedy_ci_low": float("nan")}
    named = {f"{head}{key}": value for key, value in numbers.items()}
    return {"total_step": step, "stage": "explore", "time": 2000.0, **named, **greedy, "eval/success": success}


def write_run(root: Path, success: bool = True) -> Path:
    """Write a run of ten steps and an evaluation."""
    append_lines(root / "metrics.jsonl", *(metrics_row(step) for step in range(1, 11)), evaluation(10, 0.5))
    append_lines(
        root / "events.jsonl",
        {"time": 1.0, "total_step": 2, "kind": "note", "text": "a note"},
        {"time": 2.0, "total_step": 10, "kind": "end", "text": "", "outcome": "finished"},
    )
    (root / "recipe.yaml").write_text(f"agym: 1\nname: {root.name}\n", encoding="utf-8")
    append_lines(root / "manifest.json", {"agym": "0.2.0", "packages": {"torch": "2.13"}, "started_at": 5.0})
    first = episode(id="train-3-0-0", index=0, success=False, ending="horizon")
    append_lines(root / EPISODES / "step-000003.jsonl", first, episode())
    task = {"environment": "house", "seed": 1, "difficulty": ""}
    append_lines(
        root / EPISODES / "step-000010-eval.jsonl",
        *(
            episode(
                id=f"eval-10-{number}", group=f"eval-10-{number}", purpose="eval", total_step=10, index=0,
                task={**task, "id": f"door-{number}"}, success=success or number == 0,
            )
            for number in range(3)
        ),
    )  # fmt: skip
    return root
