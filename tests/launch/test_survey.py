"""What is wrong with a cluster: each problem with its advice."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from agym.launch.survey import Gpu, Link, Node, Survey, find_problems
from agym.reporters.cluster import cluster_json, cluster_text

GIB = 2**30
H100 = Gpu("NVIDIA H100 80GB HBM3", "580.1", 81559, 81000)


def node(number: int, **changes: Any) -> Node:
    made = Node(
        address=f"10.0.0.{number}",
        host=f"node{number}",
        resolves_to=f"10.0.0.{number}",
        versions={"python": "3.12.3", "vllm": "0.32.0"},
        cores=96,
        memory_bytes=1000 * GIB,
        free_memory_bytes=900 * GIB,
        shm_bytes=500 * GIB,
        gpus=(H100,) * 8,
        is_token_on=True,
        ray_cpus=96,
        ray_gpus=8,
        object_store_bytes=200 * GIB,
        clock_skew_s=0.01,
        folder_problem=None,
    )
    return replace(made, **changes)


def survey(*nodes: Node, silent: tuple[str, ...] = (), links: tuple[Link, ...] = ()) -> Survey:
    return Survey(nodes=nodes, silent=silent, links=links, folder="/shared/runs")


def test_two_like_nodes_have_no_problem() -> None:
    way = Link(source="10.0.0.1", target="10.0.0.2", problem=None, bytes_per_s=2e9)
    assert find_problems(survey(node(1), node(2), links=(way,)), nodes=2, gpus_per_node=8) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"versions": {"python": "3.12.3", "vllm": None}},
            "vllm differs: 0.32.0 on 10.0.0.1, not installed on 10.0.0.2",
        ),
        ({"gpus": (H100,) * 4, "ray_gpus": 4}, "8 x NVIDIA H100 80GB HBM3 on 10.0.0.1, 4 x NVIDIA"),
        ({"gpus": (replace(H100, driver="570"),) * 8}, "the GPU drivers differ: 580.1 on 10.0.0.1, 570 on 10.0.0.2"),
        ({"ray_gpus": 0}, "10.0.0.2: Ray offers 0 of 8 GPUs; start it there with --num-gpus=8"),
        ({"gpus": (*(H100,) * 7, replace(H100, free_mib=100))}, "GPU 7 has 100 of 81559 MiB free; nvidia-smi"),
        ({"free_memory_bytes": GIB}, "only 1.0 GiB of 1000.0 GiB of memory are free"),
        ({"shm_bytes": 64 * 2**20}, "/dev/shm has 0.1 GiB and Ray's object store 200.0 GiB"),
        ({"folder_problem": "No such file or directory"}, "'/shared/runs' is not shared: 10.0.0.2: no such file"),
        ({"resolves_to": "127.0.1.1"}, "its own name 'node2' stands for 127.0.1.1"),
        ({"clock_skew_s": -3.0}, "its clock is 3.0 s behind; start chrony"),
        ({"is_token_on": False}, "Ray asks for no token on 10.0.0.2"),
    ],
)
def test_what_one_node_has_otherwise_is_named_with_advice(changes: dict[str, Any], said: str) -> None:
    (problem,) = find_problems(survey(node(1), node(2, **changes)))
    assert said in problem
    assert ";" in problem


@pytest.mark.parametrize(
    ("problem", "speed", "said"),
    [
        ("Connection refused", None, "no connection from 10.0.0.1 to 10.0.0.2: connection refused"),
        (None, None, "no object came from 10.0.0.1 to 10.0.0.2 in time"),
        (None, 2e7, "only 20 MB/s from 10.0.0.1 to 10.0.0.2"),
    ],
)
def test_a_way_between_nodes_that_is_closed_or_slow_is_named(
    problem: str | None, speed: float | None, said: str
) -> None:
    way = Link(source="10.0.0.1", target="10.0.0.2", problem=problem, bytes_per_s=speed)
    (found,) = find_problems(survey(node(1), node(2), links=(way,)))
    assert said in found


def test_a_node_that_is_silent_or_lacking_is_named() -> None:
    found = find_problems(survey(node(1), silent=("10.0.0.2",)), nodes=2, gpus_per_node=8)
    assert found[0].startswith("10.0.0.2 did not answer")
    assert found[1] == "the recipe needs 2 nodes with 8 GPUs, and the cluster has 1; start Ray on more"


def test_one_machine_needs_neither_a_token_nor_a_name() -> None:
    assert find_problems(survey(node(1, is_token_on=False, resolves_to="127.0.1.1"))) == []


def test_problems_come_first_and_both_forms_hold_everything() -> None:
    way = Link(source="10.0.0.1", target="10.0.0.2", problem=None, bytes_per_s=2.5e9)
    found = survey(node(1), node(2), links=(way,))
    text = cluster_text(found, ["a; b"])
    assert text.startswith("problem: a; b\n2 nodes, 1 problem\n\nnode1 (10.0.0.1)\n")
    assert "network     2500 MB/s from 10.0.0.1" in text
    data = json.loads(cluster_json(found, ["a; b"]))
    assert (data["problems"], data["links"][0]["bytes_per_s"]) == (["a; b"], 2.5e9)
    assert data["nodes"][1]["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"
