"""`agym run --on ray://`: a driver as a job of a real Ray, in processes of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from agym.launch.job import JobError
from agym.launch.ray_jobs import dashboard_of

CLUSTER = """\
import os, subprocess, sys
from ray.cluster_utils import Cluster
port = sys.argv[1]
arguments = {"num_cpus": 1, "include_dashboard": True, "dashboard_port": int(port)}
cluster = Cluster(initialize_head=True, head_node_args=arguments)
words = [sys.executable, "-m", "agym", "run", "a.yaml", "--on", f"ray://127.0.0.1:{port}"]
code = subprocess.run(words, env={**os.environ, "ONLY_HERE": "1"}).returncode
cluster.shutdown()
sys.exit(code)
"""


@pytest.mark.heavy
def test_a_driver_that_fails_there_is_followed_to_its_end(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    recipe = 'agym: 1\nname: mine\nextends: quickstart\ndescription: "${env:ONLY_HERE}"\n'
    (tmp_path / "a.yaml").write_text(recipe, encoding="utf-8")
    words = [sys.executable, "-c", CLUSTER, str(port)]
    # the job runs the python3 that is first on the path of its node
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "the cluster's nodes must have set: ONLY_HERE\n" in done.stdout
    assert f"ray job stop raysubmit_{done.stdout.split('raysubmit_')[1].split(';')[0]}" in done.stdout
    # the job read the recipe in its copy of the folder, where the variable is not set
    assert "a.yaml:4:15: error[" in done.stdout
    assert ": failed: " in done.stderr


@pytest.mark.parametrize(
    ("address", "dashboard"),
    [
        ("ray://10.0.0.1", "http://10.0.0.1:8265"),
        ("ray://head:9000", "http://head:9000"),
        ("ray://[fd00::1]:8265", "http://[fd00::1]:8265"),
    ],
)
def test_an_address_names_the_dashboard(address: str, dashboard: str) -> None:
    assert dashboard_of(address) == dashboard


@pytest.mark.parametrize(
    "address", ["ray://", "ray://h:0", "ray://h:99999", "ray://me@h", "ray://h/path", "ray://h:10001"]
)
def test_what_is_no_dashboard_is_refused(address: str) -> None:
    with pytest.raises(JobError, match="8265"):
        dashboard_of(address)
