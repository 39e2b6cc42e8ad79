"""A survey of a cluster: its problems first, then node by node what each has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from ..launch.survey import Link, Node, Survey
from .quantity import binary, plural

__all__ = ["cluster_json", "cluster_text"]


def cluster_json(survey: Survey, problems: Sequence[str]) -> str:
    return json.dumps({"problems": list(problems), **asdict(survey)}, indent=2) + "\n"


def cluster_text(survey: Survey, problems: Sequence[str]) -> str:
    lines = [f"problem: {each}" for each in problems]
    lines.append(
        f"{plural(len(survey.nodes), 'node')}, {plural(len(problems), 'problem') if problems else 'no problem'}"
    )
    for node in survey.nodes:
        ways = [link for link in survey.links if link.target == node.address]
        lines += ["", f"{node.host} ({node.address})", *(f"  {name:<12}{value}" for name, value in _rows(node, ways))]
    return "\n".join(lines) + "\n"


def _rows(node: Node, ways: Sequence[Link]) -> Iterator[tuple[str, str]]:
    yield "versions", ", ".join(f"{name} {version}" for name, version in node.versions.items() if version)
    yield "cores", f"{node.cores}, of which Ray offers {node.ray_cpus}"
    yield "memory", f"{binary(node.free_memory_bytes)} of {binary(node.memory_bytes)} free"
    yield "/dev/shm", f"{binary(node.shm_bytes)}, and an object store of {binary(node.object_store_bytes)}"
    for index, gpu in enumerate(node.gpus):
        yield f"gpu {index}", f"{gpu.name}, driver {gpu.driver}, {gpu.free_mib} of {gpu.memory_mib} MiB free"
    if not node.gpus:
        yield "gpus", "none"
    yield "folder", node.folder_problem or "shared"
    yield "clock", "no answer" if node.clock_skew_s is None else f"{node.clock_skew_s:+.2f} s"
    yield "token", "asked for" if node.is_token_on else "not asked for"
    for way in ways:
        speed = f"{way.bytes_per_s / 1e6:.0f} MB/s" if way.bytes_per_s else way.problem or "no answer"
        yield "network", f"{speed} from {way.source}"
