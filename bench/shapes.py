"""Claim: every distinct `hardware:` of the shipped recipes starts, imitates for two steps and learns from play for two.

Shapes differ in `hardware`, or in the model's family, dtype or adapters. Each is cut to at most two nodes, two engines
and two ranks, placed by the planner as on GPUs, and run without them with a miniature model of the same family. What a
CPU cannot do is replaced, and said for each shape. Two nodes are two network namespaces.

    python bench/shapes.py FOLDER [--only NUMBER ...]    runs those that the folder does not hold yet
    python bench/shapes.py --list                        what each is cut to, and what is replaced
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from agym.catalog import catalog
from agym.dsl.compile import compile_recipe
from agym.dsl.model.model_sizes import find_shape
from agym.dsl.model.plan import Plan, Role, Worker
from agym.dsl.model.recipe import DType, Family, Hardware, Init, Lora, Model, TokenizerInit, TokenizerKind
from agym.dsl.planning.lower import lower
from agym.dsl.planning.placement import choose_launcher, count_ranks, explain_misfit
from agym.dsl.source import Source
from agym.files import DiskLibrary, is_base, shipped_names
from agym.runtime.backends.engine_variables import missing_variables
from agym.runtime.backends.hf_models import ModelSource
from agym.runtime.workers.build import learner_settings, sampler_settings
from two_nodes import TwoNodes, two_nodes

__all__ = ["Shape", "check_run", "cut", "list_replaced", "list_shapes", "make_plan", "run_shape"]

IMITATED, STEPS = 2, 2
_MOST = 2
"""Nodes, engines, ranks, and processes of an engine."""
_PATIENCE_S = 280.0
_RECIPE = f"""\
agym: 1
name: shape
model: {{init: {{tokenizer: {{kind: word}}}}}}
environments: {{textcraft: {{use: textcraft, options: {{world: small, terse: true}}}}}}
agent: {{format: plain, tokens_per_turn: 8, context_tokens: 192}}
algorithm: {{use: grpo, group_size: 4, groups_per_step: 4, groups_per_update: 2, lr: 1e-3, kl: {{coef: 0.01}}}}
reward: score - 0.1 * invalid_turns - 0.01 * sampled_tokens
schedule:
  - stage: imitate
    until: step >= {IMITATED}
    algorithm: {{use: sft, batch_size: 16, lr: 1e-2, data: {{limit: 32}}}}
  - {{stage: play, turns: 2, until: step >= {STEPS}}}
eval: null
checkpoint: {{every: {IMITATED + STEPS}}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What decides how a run is laid out."""

    hardware: Hardware
    family: Family
    dtype: DType
    lora: Lora | None

    @property
    def nodes(self) -> int:
        """Of what is left of it."""
        return cut(self.hardware).nodes


@cache
def list_shapes() -> dict[Shape, list[str]]:
    """Return the shapes of all shipped recipes and of all runs of their matrices, each with its recipes."""
    found: dict[Shape, list[str]] = {}
    for name in shipped_names():
        if is_base(f"{name}.yaml"):
            continue
        for recipe in (each.recipe for each in _compile(name).variants):
            model = recipe.model
            shape = Shape(hardware=recipe.hardware, family=_family(model), dtype=model.dtype, lora=model.lora)
            if name not in (names := found.setdefault(shape, [])):
                names.append(name)
    return found


def _compile(name: str, text: str | None = None) -> Any:
    library = DiskLibrary(Path.cwd())
    source = library.open(name) if text is None else Source(name, text)
    assert isinstance(source, Source), source
    compiled = compile_recipe(source, library, (), {}, catalog())
    assert not compiled.failed, [each.message for each in compiled.diagnostics]
    return compiled


def _family(model: Model) -> Family:
    if model.init is not None:
        return model.init.family
    sizes = find_shape(model)
    assert sizes is not None, f"the sizes of '{model.path}' are not in the table of published models"
    return Family.QWEN3 if sizes.qk_norm else Family.QWEN2 if sizes.attention_bias else Family.LLAMA


def cut(hardware: Hardware) -> Hardware:
    """Return the largest part of it that has at most two nodes, two engines and two ranks, and one of each at least."""
    share = min(hardware.rollout.tensor_parallel, _MOST)
    rollout = replace(hardware.rollout, tensor_parallel=share, gpus=_at_most(hardware.rollout.gpus, _MOST * share))
    train = hardware.train
    divided = min(train.sequence_parallel, _MOST)
    train = replace(train, gpus=_at_most(train.gpus, _MOST), sequence_parallel=divided)
    least = replace(hardware, rollout=rollout, train=train)
    parts = [
        replace(least, nodes=nodes, gpus_per_node=gpus, workers_per_node=workers)
        for nodes, gpus, workers in product(
            range(min(hardware.nodes, _MOST), 0, -1),
            range(min(hardware.gpus_per_node, _MOST * (1 + share)), 0, -1) if hardware.gpus_per_node else (0,),
            range(min(hardware.workers_per_node, _MOST), 0, -1),
        )
    ]
    return next(part for part in parts if _is_small(part))


def _at_most(count: int | None, most: int) -> int | None:
    return None if count is None else min(count, most)


def _is_small(part: Hardware) -> bool:
    counts = count_ranks(part)
    if counts.learners % part.train.sequence_parallel:
        return False
    return explain_misfit(part) is None and all(1 <= count <= _MOST for count in (counts.engines, counts.learners))


def make_plan(shape: Shape, address: str | None = None, *, gpus: bool = False) -> Plan:
    """Plan a run of what is left of a shape, with its workers where they would be with GPUs.

    `address` is that of a running Ray cluster; with `gpus` the plan is the one before GPUs are taken away."""
    (variant,) = _compile("shape.yaml", _RECIPE).variants
    init = Init(
        family=shape.family,
        layers=2,
        hidden=64,
        heads=2,
        kv_heads=1,
        tokenizer=TokenizerInit(kind=TokenizerKind.WORD, vocab=320),
    )
    model = Model(init=init, dtype=shape.dtype, lora=shape.lora)
    # where a machine would hold several workers Ray starts them, with GPUs as without
    hardware = cut(shape.hardware)
    hardware = replace(hardware, launcher=choose_launcher(hardware), ray_address=address or hardware.ray_address)
    recipe = replace(variant.recipe, model=model, hardware=hardware)
    plan = lower(recipe, find_shape(model), (), variant.plan.recipe_sha256, catalog())
    return plan if gpus or not hardware.gpus_per_node else _without_gpus(plan)


def _without_gpus(plan: Plan) -> Plan:
    """Each worker stays on its node."""
    hardware = replace(plan.hardware, gpus_per_node=0, gpu=None, gpu_memory_gb=None)
    workers = tuple(replace(worker, gpus=()) for worker in plan.placement.workers)
    return replace(
        plan,
        hardware=hardware,
        placement=replace(plan.placement, workers=workers),
        budget=replace(plan.budget, capacity_bytes=None),
    )


def list_replaced(shape: Shape) -> list[str]:
    """Say how a run of a shape on CPUs differs from one on GPUs."""
    with_gpus, without = (_describe(make_plan(shape, gpus=gpus)) for gpus in (True, False))
    return [f"{name}: {without[name]} for {value}" for name, value in with_gpus.items() if value != without[name]]


_SIZES = ("memory_share", "tokens_per_micro_batch")
"""Follow from the GPU's memory, which no CPU has."""


def _describe(plan: Plan) -> dict[str, str]:
    """All that engines are given, and what carries tensors between ranks."""
    model = ModelSource(path="model")
    facts = {"collectives": "nccl" if plan.hardware.gpus_per_node else "gloo"}
    for part, settings in (("sampler", sampler_settings(plan, model)), ("learner", learner_settings(plan, model))):
        facts |= {f"{part}.{each.name}": str(getattr(settings, each.name)) for each in fields(settings)}
    return {name: value for name, value in facts.items() if not name.endswith(_SIZES)}


# --- running -------------------------------------------------------------------------------------------------------


def run_shape(number: int, folder: Path, cluster: TwoNodes | None = None) -> tuple[int, str]:
    """Run a shape in a process of its own, on the first node of the cluster if one is given; return code and output."""
    shape = list(list_shapes())[number]
    folder.mkdir(parents=True, exist_ok=True)
    address = [] if cluster is None else ["--address", cluster.address]
    command = [sys.executable, str(Path(__file__).resolve()), str(folder.resolve()), "--one", str(number), *address]
    missing = missing_variables(os.environ, threads=shape.hardware.threads or 1, cpu=True)
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "cwd": folder}
    if cluster is None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        run = subprocess.Popen(command, env=environ | missing, text=True, start_new_session=True, **streams)
    else:
        run = cluster.start(0, "env", *(f"{name}={value}" for name, value in missing.items()), *command, **streams)
    out, _ = run.communicate(timeout=_PATIENCE_S)
    return run.returncode, out


def _run_here(number: int, folder: Path, address: str | None) -> None:
    from agym.runtime.run import Start, run_plan
    from agym.runtime.sinks.console.console import Terminal

    plan = make_plan(list(list_shapes())[number], address)
    run_plan(
        plan,
        folder / "run",
        Start(recipe=_RECIPE, folder=folder, fresh=True),
        terminal=Terminal(out=sys.stdout, live=False),
        environ=os.environ,
        clock=time.perf_counter,
        wall_clock=time.time,
    )


def check_run(number: int, folder: Path) -> Mapping[str, Any]:
    """Return the last row of a run that did what its shape says; each sync in it was proven, or it would have ended."""
    root = folder / "run"
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    assert [row["total_step"] for row in rows if "train/loss" in row] == list(range(1, IMITATED + STEPS + 1)), rows
    plan = make_plan(list(list_shapes())[number])
    wanted = {each.id.replace("/", "-") for each in _list_processes(plan)}
    logs = {file.stem for file in (root / "logs/workers").glob("*.log")}
    assert logs == (wanted if plan.placement.launcher == "ray" else set()), (logs, wanted)
    assert (root / f"checkpoints/step-{IMITATED + STEPS}").is_dir()
    return rows[-1]


def _list_processes(plan: Plan) -> list[Worker]:
    return [each for each in plan.placement.workers if each.role in (Role.ROLLOUT, Role.LEARNER)]


def _show(number: int, shape: Shape, names: Sequence[str]) -> None:
    plan = make_plan(shape)
    workers = ", ".join(f"{each.id} on node {each.node}" for each in _list_processes(plan))
    print(f"{number}: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}")
    print(f"   {', '.join(_list_changed(shape.hardware)) or 'all by default'}; {shape.family}, {shape.dtype}")
    print(f"   cut to {plan.hardware.nodes} nodes, {plan.placement.launcher}: {workers}")
    for line in list_replaced(shape):
        print(f"   replaced: {line}")


def _list_changed(hardware: Any, default: Any = None, prefix: str = "") -> Iterator[str]:
    """What a recipe says of its hardware."""
    default = default or type(hardware)()
    for each in fields(hardware):
        value, usual = getattr(hardware, each.name), getattr(default, each.name)
        if value != usual:
            if is_dataclass(value):
                yield from _list_changed(value, usual, f"{prefix}{each.name}.")
            else:
                yield f"{prefix}{each.name}={value}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", type=int, nargs="+")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    shapes = list_shapes()
    if arguments.one is not None:
        _run_here(arguments.one, arguments.folder, arguments.address)
        return 0
    if arguments.list or arguments.folder is None:
        for number, (shape, names) in enumerate(shapes.items()):
            _show(number, shape, names)
        return 0
    return _run_all(shapes, arguments.folder, arguments.only or range(len(shapes)))


def _run_all(shapes: Mapping[Shape, Sequence[str]], folder: Path, chosen: Sequence[int]) -> int:
    wrong = 0
    for number in chosen:
        shape = list(shapes)[number]
        place = folder / shapes[shape][0].replace("/", "-")
        if not (kept := place / "result.json").exists():
            place.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(_run_one(number, shape, place)))
        result = json.loads(kept.read_text())
        wrong += bool(result["code"])
        _show(number, shape, shapes[shape])
        print(f"   {'failed: see ' + str(place) if result['code'] else 'ran'}, {result['seconds']:.0f} s", flush=True)
    return int(bool(wrong))


def _run_one(number: int, shape: Shape, place: Path) -> dict[str, Any]:
    started = time.perf_counter()
    if shape.nodes == 1:
        code, out = run_shape(number, place)
    else:
        with two_nodes() as cluster:
            code, out = run_shape(number, place, cluster)
    (place / "console.txt").write_text(out)
    if code == 0:
        check_run(number, place)
    return {"code": code, "seconds": time.perf_counter() - started}


if __name__ == "__main__":
    sys.exit(main())
