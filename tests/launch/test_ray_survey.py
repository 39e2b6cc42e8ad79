"""`agym doctor --cluster` on a real Ray of two nodes, in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..conftest import Agym

pytest.importorskip("ray")

CLUSTER = """\
import subprocess, sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
code = 0
for words in (["--format", "json"], []):
    code = subprocess.run([sys.executable, "-m", "agym", "doctor", "--cluster", cluster.address, *words]).returncode
cluster.shutdown()
sys.exit(code)
"""


@pytest.mark.heavy
def test_two_real_nodes_are_looked_at(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLUSTER], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    data, end = json.JSONDecoder().raw_decode(done.stdout)
    assert len(data["nodes"]) == 2
    for node in data["nodes"]:
        assert node["versions"]["ray"]
        assert node["versions"]["agym-dsl"]
        assert node["folder_problem"] is None
        assert abs(node["clock_skew_s"]) < 1
        assert node["ray_cpus"] == 1
    assert [link["problem"] for link in data["links"]] == [None, None]
    assert all(link["bytes_per_s"] > 0 for link in data["links"])
    # what is left is the machine's own business
    assert not [each for each in data["problems"] if "differs" in each or "shared" in each or "connection" in each]
    assert "2 nodes" in done.stdout[end:]
    assert list((tmp_path / "runs").iterdir()) == []


def test_no_cluster_is_an_error_that_says_what_to_do(agym: Agym) -> None:
    called = agym("doctor", "--cluster", "127.0.0.1:1")
    assert called.code == 3
    assert "nothing answers at 127.0.0.1:1 (connection refused): is Ray started there" in called.err


def test_options_of_a_cluster_go_with_a_cluster(agym: Agym) -> None:
    assert agym("doctor", "--format", "json").code == 2
