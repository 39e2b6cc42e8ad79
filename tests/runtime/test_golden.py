"""Golden rows: one miniature run of every preset writes the metrics that are frozen in `golden/`.

`python -m pytest tests/runtime/test_golden.py --golden` writes them anew; a commit that does so does nothing else.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.check.presets import presets
from agym.envs.clients.client import InlineEnv
from agym.runtime.engine import OutcomeKind

from .conftest import RECIPE, HttpServer, echoing

FOLDER = Path(__file__).with_name("golden")

PREFERENCE = echoing("""
algorithm: {use: dpo, group_size: 4, groups_per_step: 6, batch_size: 6, lr: 20, epochs: 2,
            optimizer: {betas: [0.5, 0.9]}, preference: {beta: 0.3}}
schedule: [{stage: prefer, turns: 4, until: step >= 5}]
eval: {every: 2, turns: 4, samples: 2}
checkpoint: {every: 2}
""")
TURNS = echoing("""
algorithm: {use: turn_dpo, group_size: 4, groups_per_step: 4, batch_size: 8, lr: 20, optimizer: {betas: [0.5, 0.9]},
            preference: {beta: 0.3, candidates: 3}, critic: {lr: 40, warmup_steps: 1}}
schedule: [{stage: prefer, turns: 3, until: step >= 4}]
eval: {every: 2, turns: 3}
checkpoint: {every: 2}
""")
EVOLVE = echoing("""
algorithm:
  {use: agent_evol, lr: 1, batch_size: 5, groups_per_step: 4, epochs: 2,
   optimizer: {betas: [0.5, 0.9], warmup_steps: 3}, evolve: {rounds: 3, samples: 3}}
schedule: [{stage: evolve, turns: 4}]
eval: {every: 2, turns: 4}
checkpoint: {every: 1}
""")
IMITATE = echoing("""
algorithm: {use: sft, lr: 2, batch_size: 3, data: {source: expert, noise: 0.2}}
schedule: [{stage: imitate, until: step >= 4}]
eval: {every: 2, turns: 4}
checkpoint: {every: 2}
""")
EVALUATE = echoing("""
algorithm: {use: eval}
schedule: [{stage: look, turns: 3}]
eval: {turns: [2, 3], samples: 2, greedy: true}
""")
MOVING = (
    "schedule.2.until=step >= 5 or mean(success, 2) >= 0.9",
    "schedule.2.turns=min(1 + total_step // 2, 4) if default(last(success), 1) > 0.1 else 2",
    "algorithm.lr=cosine(4, 1, 9)",
    "environments.other={use: other, weight: 0.7}",
    "algorithm.filter={groups: std > 0, resample: true, max_resamples: 1}",
    "guards.max_roll_backs=50",
)

TEXTS = {
    "dpo": PREFERENCE,
    "turn_dpo": TURNS,
    "agent_evol": EVOLVE,
    "sft": IMITATE,
    "relay": IMITATE.replace("use: sft", "use: relay"),
    "eval": EVALUATE,
}
SETTINGS: dict[str, tuple[str, ...]] = {
    "remax": ("schedule.1.algorithm.group_size=1", "schedule.2.algorithm.group_size=1"),
    "reinforce": ("schedule.1.algorithm.group_size=1", "schedule.2.algorithm.group_size=1"),
}
FURTHER: dict[str, tuple[str, tuple[str, ...]]] = {
    "moving-0": (RECIPE, (*MOVING, "hardware.staleness=0")),
    "moving-2": (RECIPE, (*MOVING, "hardware.staleness=2")),
    "kl-in-reward": (RECIPE, ("algorithm.kl={coef: 0.05, place: reward, estimator: k3, target: 0.01}",)),
    "epochs-and-stop": (RECIPE, ("algorithm.epochs=3", "algorithm.kl_stop=0.05", "algorithm.filter.top_share=0.5")),
    "rejection-sampling": (
        IMITATE,
        ("algorithm.data={source: rollout, keep: success}", "algorithm.groups_per_step=4", "schedule.0.turns=3"),
    ),
    "retrained-from-the-last": (EVOLVE, ("algorithm.evolve.retrain_from=last",)),
}


def recipe_of(case: str) -> tuple[str, tuple[str, ...]]:
    if case in FURTHER:
        return FURTHER[case]
    if case in TEXTS:
        return TEXTS[case], ()
    stages = (f"schedule.{at}.algorithm.use={case}" for at in (1, 2))
    return RECIPE, ("algorithm.kl.reference=start", *stages, *SETTINGS.get(case, ()))


class _Judge(BaseHTTPRequestHandler):
    """Prefers whoever speaks of more 'wrong' answers less."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        _, a, b = body["messages"][-1]["content"].split("Conversation ", 2)
        found = (a.count("wrong"), b.count("wrong"))
        word = "tie" if found[0] == found[1] else "A" if found[0] < found[1] else "B"
        message = {"role": "assistant", "content": f"better: {word}"}
        whole = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"total_tokens": 7}}
        content = json.dumps(whole).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def judge_url() -> Iterator[str]:
    server = HttpServer(("127.0.0.1", 0), _Judge)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def solvable(echo: Any) -> InlineEnv:
    class Solvable(echo):  # type: ignore[misc]
        def expert(self, task: str, seed: int) -> tuple[str, ...]:
            self.reset(task, seed)
            actions = [str(self._wanted)]
            self.step(actions[0])
            return (*actions, str(self._wanted))

        def hindsight(self, task: str, seed: int, actions: Any) -> dict[str, tuple[str, ...]]:
            return {}

    return InlineEnv(Solvable)


@pytest.mark.parametrize("case", [*sorted(presets()), *FURTHER])
def test_the_miniature_run_writes_the_golden_rows(
    new_run: Any, solvable: Any, judge_url: str, case: str, request: Any
) -> None:
    text, settings = recipe_of(case)
    if case == "mtpo":
        judge = f"{{source: pairwise, judge: {{url: '{judge_url}', model: fair}}}}"
        settings = (*settings, *(f"schedule.{at}.reward={judge}" for at in (1, 2)))
    run = new_run(*settings, text=text, clients={"echo": solvable, "other": solvable})
    assert run.go().kind is OutcomeKind.FINISHED
    file = FOLDER / f"{case}.jsonl"
    if request.config.getoption("--golden"):
        file.write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in run.exact()))
    golden = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(run.exact()) == len(golden)
    for row, frozen in zip(run.exact(), golden, strict=True):
        # libraries of linear algebra may round the last bit otherwise on another processor
        assert row == {name: same(value) for name, value in frozen.items()}


def same(value: Any) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value
