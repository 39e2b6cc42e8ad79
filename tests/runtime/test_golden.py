"""Golden rows: one miniature run of every preset writes the metrics that are frozen in `golden/`.

`python -m pytest tests/runtime/test_golden.py --golden` rewrites them; a commit that does so does nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.check.presets import load_presets
from agym.runtime.engine import OutcomeKind

from .conftest import RECIPE, echoing

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
DISTILL = echoing("""
algorithm: {use: distill, groups_per_step: 6, lr: 4, optimizer: {betas: [0.5, 0.9]}, distill: teacher}
schedule: [{stage: distill, turns: 3, until: step >= 4}]
eval: {every: 2, turns: 3}
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
    "distill": DISTILL,
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


def recipe_of(case: str, judge_url: str = "http://127.0.0.1:9/v1") -> tuple[str, tuple[str, ...]]:
    if case in FURTHER:
        return FURTHER[case]
    if case in TEXTS:
        return TEXTS[case], ()
    stages = (f"schedule.{at}.algorithm.use={case}" for at in (1, 2))
    judge = f"{{source: pairwise, judge: {{url: '{judge_url}', model: fair}}}}"
    judged = [f"schedule.{at}.reward={judge}" for at in (1, 2)] if case == "mtpo" else []
    return RECIPE, ("algorithm.kl.reference=start", *stages, *SETTINGS.get(case, ()), *judged)


@pytest.mark.parametrize("case", [*sorted(load_presets()), *FURTHER])
def test_the_miniature_run_writes_the_golden_rows(
    new_run: Any, solvable: Any, judge_url: str, case: str, request: Any
) -> None:
    text, settings = recipe_of(case, judge_url)
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
