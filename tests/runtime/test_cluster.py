"""Runs on a Ray cluster of two nodes, and the shapes of `hardware:` that the shipped recipes have, cut to this machine.

Each node is a network namespace. Where those are not allowed, tests fail with NoNamespaces.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")

from agym.dsl.model.plan import Role
from agym.dsl.model.recipe import Hardware, Layout, Offload, RolloutHardware, TrainHardware
from agym.dsl.planning.placement import count_ranks
from shapes import Shape, check_run, cut, list_replaced, list_shapes, make_plan, run_shape
from two_nodes import TwoNodes, two_nodes

from ..engine_server import EngineServer

TWENTY_STEPS = """
agym: 1
name: small
model: {init: {layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {kind: word, vocab: 320}}}
environments: {textcraft: {use: textcraft, options: {world: small, terse: true}}}
agent: {format: plain, tokens_per_turn: 8, context_tokens: 192}
algorithm: {use: grpo, group_size: 4, groups_per_step: 4, groups_per_update: 2, lr: 1e-3, kl: {coef: 0.01}}
reward: score - 0.1 * invalid_turns - 0.01 * sampled_tokens
schedule:
  - {stage: imitate, until: step >= 2, algorithm: {use: sft, batch_size: 16, lr: 1e-2, data: {limit: 60}}}
  - {stage: exploit, turns: 3, until: step >= 18}
eval: null
checkpoint: {every: 20}
"""
COUNTED = ("total_step", "stage", "rollout/tokens", "rollout/episodes", "train/tokens")
WHILE_WEIGHTS_ARE_EQUAL = 4
"""Steps after which weights have not drifted apart so far that another token is drawn."""


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "runs/small/metrics.jsonl").read_text().splitlines()]


# --- two nodes -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    with two_nodes() as nodes:
        yield nodes


@pytest.mark.heavy
def test_two_machines_begin_as_one_process_and_take_twenty_steps(
    cluster: TwoNodes, engines: EngineServer, tmp_path: Path
) -> None:
    for name in ("two", "one"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").write_text(TWENTY_STEPS)
    words = (sys.executable, "-m", "agym", "run", "recipe.yaml", *cluster.settings, "--set", "hardware.train.zero=3")
    run = cluster.start(0, *words, cwd=tmp_path / "two", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out, _ = run.communicate(timeout=300)
    assert run.returncode == 0, out[-3000:]
    alone = engines.run("-m", "agym", "run", "recipe.yaml", cwd=tmp_path / "one")
    assert alone.returncode == 0, alone.stdout[-3000:]
    rows, expected = rows_of(tmp_path / "two"), rows_of(tmp_path / "one")
    assert [row["total_step"] for row in rows] == list(range(1, 21))
    for mine, theirs in list(zip(rows, expected, strict=True))[:WHILE_WEIGHTS_ARE_EQUAL]:
        assert {key: mine.get(key) for key in COUNTED} == {key: theirs.get(key) for key in COUNTED}
        assert mine["train/loss"] == pytest.approx(theirs["train/loss"], abs=1e-5)


# --- shapes of hardware --------------------------------------------------------------------------------------------

STARTED = ("scale/split", "agentgym-rl/mixture")
"""Recipes whose shapes start here; `bench/shapes.py` starts all of them."""


@pytest.mark.heavy
@pytest.mark.parametrize("recipe", STARTED)
def test_the_shape_of_a_shipped_recipe_starts_and_learns(
    recipe: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    number, shape = next((at, each) for at, (each, names) in enumerate(list_shapes().items()) if recipe in names)
    nodes: TwoNodes | None = request.getfixturevalue("cluster") if shape.nodes > 1 else None
    code, out = run_shape(number, tmp_path, nodes)
    assert code == 0, out[-3000:]
    check_run(number, tmp_path)


@pytest.mark.slow
def test_every_shape_is_cut_to_two_of_each_and_keeps_all_else() -> None:
    for shape in list_shapes():
        _check_cut(shape)


def _check_cut(shape: Shape) -> None:
    plan = make_plan(shape)
    nodes = {role: [each.node for each in plan.placement.workers if each.role is role] for role in Role}
    assert 1 <= len(nodes[Role.ROLLOUT]) <= 2
    assert 1 <= len(nodes[Role.LEARNER]) <= 2
    is_split = shape.hardware.layout is Layout.SPLIT
    assert is_split == (not set(nodes[Role.ROLLOUT]) & set(nodes[Role.LEARNER]))
    kept = ("layout", "staleness", "in_flight", "threads", "weight_transfer")
    assert all(getattr(plan.hardware, name) == getattr(shape.hardware, name) for name in kept)
    divided = min(2, shape.hardware.train.sequence_parallel)
    assert plan.hardware.train == replace(shape.hardware.train, sequence_parallel=divided)
    assert (plan.model.dtype, plan.model.lora) == (shape.dtype, shape.lora)


@pytest.mark.slow
def test_what_a_cpu_cannot_do_is_said_for_each_shape() -> None:
    on_gpus = {"collectives", "sampler.eager", "sampler.transfer", "learner.activation_checkpointing"}
    on_gpus |= {"learner.fp32_head"}
    for shape in list_shapes():
        takes_turns = shape.hardware.layout is Layout.COLOCATED
        expected = on_gpus | ({"sampler.shares_gpu"} if takes_turns else set())
        replaced = {line.partition(":")[0] for line in list_replaced(shape)}
        assert replaced == (expected if shape.hardware.gpus_per_node else set())


EIGHT = Hardware(nodes=4, gpus_per_node=8)


@pytest.mark.parametrize(
    ("hardware", "nodes", "gpus", "engines", "ranks"),
    [
        (EIGHT, 2, 1, 2, 2),
        (replace(EIGHT, nodes=1), 1, 2, 2, 2),
        (replace(EIGHT, layout=Layout.SPLIT), 2, 2, 2, 2),
        (replace(EIGHT, layout=Layout.SPLIT, nodes=1), 1, 4, 2, 2),
        (replace(EIGHT, rollout=RolloutHardware(tensor_parallel=4)), 1, 2, 1, 2),
        (replace(EIGHT, train=TrainHardware(zero=3, offload=Offload.ALL)), 2, 1, 2, 2),
    ],
)
def test_the_largest_part_with_two_of_each_is_left(
    hardware: Hardware, nodes: int, gpus: int, engines: int, ranks: int
) -> None:
    part = cut(hardware)
    counts = count_ranks(part)
    assert (part.nodes, part.gpus_per_node, counts.engines, counts.learners) == (nodes, gpus, engines, ranks)
    assert part.train == hardware.train


def test_ranks_that_divide_a_row_stay_together() -> None:
    part = cut(replace(EIGHT, nodes=1, train=TrainHardware(sequence_parallel=4)))
    assert (part.gpus_per_node, part.train.sequence_parallel) == (2, 2)


def test_workers_of_a_cpu_are_cut_too() -> None:
    assert cut(Hardware(nodes=3, workers_per_node=4)) == Hardware(nodes=2)
    assert cut(Hardware(workers_per_node=4)) == Hardware(workers_per_node=2)
