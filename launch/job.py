"""A Job: what a scheduler has to provide for a plan, and what it runs there. Every job file is written from one."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import yaml

from ..dsl.model.plan import Plan, Role
from ..dsl.model.recipe import Gpu, Launcher

__all__ = [
    "Job",
    "JobError",
    "dump_yaml",
    "make_job",
    "needs_cluster",
    "one_line",
    "read_options",
    "run_or_resume",
    "splice",
]

_CORES_PER_GPU_WORKER = 4
_SPARE_CORES = 2
"""For the driver and for Ray itself."""
_WORKER_GIB = 6
"""Host memory of one process with torch and an engine, besides what the plan counts."""
_ENVIRONMENT_GIB = 1


class JobError(Exception):
    """Why no job file can be written, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a job requests from any scheduler."""

    name: str
    nodes: int
    gpus_per_node: int
    gpu: Gpu | None
    cpus_per_node: int
    memory_gib: int
    """Host memory of each node."""
    needs_cluster: bool
    """Whether Ray must run on the nodes before the driver starts."""
    variables: tuple[str, ...]
    """Environment variables that the recipe needs; values are never written."""
    folder: str
    """Where agym was called."""
    run_folder: str
    first: tuple[str, ...]
    """Arguments of agym that begin the run."""
    again: tuple[str, ...]
    """Arguments of agym that continue it."""


def make_job(
    plan: Plan,
    *,
    folder: str,
    run_folder: str,
    first: Sequence[str],
    again: Sequence[str],
    variables: Collection[str],
) -> Job:
    hardware = plan.hardware
    for what, text in (("folder", folder), ("run folder", run_folder)):
        if not text.isprintable():
            raise JobError(f"the {what} {text!r} has characters that no job file can hold: rename it")
    placed = plan.placement.workers
    workers = _most_on_a_node(worker.node for worker in placed if worker.role in (Role.ROLLOUT, Role.LEARNER))
    servers = _most_on_a_node(worker.node for worker in placed if worker.role is Role.ENVIRONMENT)
    cores = hardware.threads or (_CORES_PER_GPU_WORKER if hardware.gpus_per_node else 1)
    return Job(
        name=PurePath(run_folder).name,
        nodes=hardware.nodes,
        gpus_per_node=hardware.gpus_per_node,
        gpu=hardware.gpu,
        cpus_per_node=workers * cores + servers + _SPARE_CORES,
        memory_gib=_host_gib(plan) + workers * _WORKER_GIB + servers * _ENVIRONMENT_GIB,
        needs_cluster=needs_cluster(plan),
        variables=tuple(sorted(variables)),
        folder=folder,
        run_folder=run_folder,
        first=tuple(first),
        again=tuple(again),
    )


def needs_cluster(plan: Plan) -> bool:
    """Whether Ray must run before the driver starts, which on one machine starts its own."""
    hardware = plan.hardware
    return plan.placement.launcher == Launcher.RAY and (hardware.nodes > 1 or hardware.ray_address is not None)


def _most_on_a_node(nodes: Iterable[int]) -> int:
    return max(Counter(nodes).values(), default=0)


def _host_gib(plan: Plan) -> int:
    """What the plan keeps in host memory, and one copy of the weights in full precision on their way."""
    held = sum(item.bytes for use in plan.budget.memory if use.host for item in use.items)
    return -(-(held + 4 * (plan.budget.parameters or 0)) // 2**30)


def one_line(text: str) -> str:
    """A text for a comment, where a line break would begin a command."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def run_or_resume(job: Job) -> str:
    """Shell lines that set `$@` to agym's arguments: those that begin the run, or resume it where its folder exists."""
    return (
        f"if [ -f {shlex.quote(job.run_folder + '/plan.json')} ]; then\n"
        f"  set -- {shlex.join(job.again)}\n"
        "else\n"
        f"  set -- {shlex.join(job.first)}\n"
        "fi"
    )


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def dump_yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    """Write YAML that reads back as it is, whatever the texts hold."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


_OPTION = re.compile(r"([a-z][a-z-]*)=(.+)")


def read_options(given: Sequence[str], known: Mapping[str, str] | None) -> dict[str, str]:
    """Read `KEY=VALUE` words; without `known`, any key will do."""
    found = {}
    for word in given:
        match = _OPTION.fullmatch(word)
        if match is None or not word.isprintable():
            raise JobError(f"--job-option {word!r} is not of the form KEY=VALUE")
        key, value = match.groups()
        if known is not None and key not in known:
            listed = "; ".join(f"{name}, {what}" for name, what in known.items())
            raise JobError(f"--job-option {key}=... is not known here; known: {listed}")
        found[key] = value
    return found


def splice(template: str, parts: Mapping[str, str]) -> str:
    """Fill `@NAME@` marks, each once and none in the filled-in values: a value may look like a mark."""
    return re.sub(r"@([A-Z_]+)@", lambda mark: parts[mark[1]], template)
