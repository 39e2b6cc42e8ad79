"""The SkyPilot task: what it asks for, its script on the first and on other nodes, secrets by reference."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from agym.dsl.model.recipe import Gpu
from agym.launch.job import JobError
from agym.launch.skypilot import sky_yaml

from .conftest import TWO_NODES, Clients, job_of, linter
from .test_slurm import HOSTILE

OPTIONS = {"image": "registry/agym:1", "volume": "runs"}


def written(folder: Path, **changes: Any) -> dict[str, Any]:
    task = yaml.safe_load(sky_yaml(job_of(TWO_NODES, folder, **changes), OPTIONS, command="agym run r.yaml"))
    assert isinstance(task, dict)
    return task


def run_script(task: dict[str, Any], rank: int, clients: Clients, folder: Path, code: int = 0) -> int:
    clients.add("python3", f'[ "$2" = agym ] && exit {code}', "exit 0")
    environ = {**clients.environ, "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NODE_RANK": str(rank)}
    return subprocess.run(["bash", "-c", task["run"]], cwd=folder, env=environ, check=False, timeout=60).returncode


def test_it_asks_for_what_the_plan_needs_and_names_secrets(tmp_path: Path) -> None:
    task = written(tmp_path, variables=("WANDB_API_KEY",))
    assert task["num_nodes"] == 2
    assert task["resources"]["accelerators"] == "H100:8"
    assert task["secrets"] == {"WANDB_API_KEY": None, "RAY_AUTH_TOKEN": None}


@pytest.mark.parametrize("gpu", Gpu)
def test_every_gpu_has_a_name(gpu: Gpu, tmp_path: Path) -> None:
    assert written(tmp_path, gpu=gpu)["resources"]["accelerators"].endswith(":8")


def test_the_first_node_starts_ray_and_the_driver_and_ends_as_it_ends(clients: Clients, tmp_path: Path) -> None:
    for code in (0, 3):
        assert run_script(written(tmp_path), 0, clients, tmp_path, code) == code
    calls = clients.calls("python3")
    assert calls.count("-m agym run r.yaml") == 2
    assert any("--head" in call and "--node-ip-address=10.0.0.1" in call for call in calls)


def test_the_other_nodes_join_it(clients: Clients, tmp_path: Path) -> None:
    assert run_script(written(tmp_path), 1, clients, tmp_path) == 0
    calls = clients.calls("python3")
    assert any("start --block --address=10.0.0.1:6479" in call for call in calls)
    assert not any("agym" in call for call in calls)


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_of_a_recipe_stay_texts(text: str, clients: Clients, tmp_path: Path) -> None:
    run_script(written(tmp_path, first=("run", "r.yaml", "--set", text)), 0, clients, tmp_path)
    assert f"-m agym run r.yaml --set {text.replace(chr(10), '⏎')}" in clients.log.read_text()
    assert "made" not in os.listdir(tmp_path)


def test_what_it_cannot_do_without_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"--job-option volume=\.\.\., a SkyPilot volume"):
        sky_yaml(job_of(TWO_NODES, tmp_path), {"image": "x"}, command="")
    with pytest.raises(JobError, match=r"write 'hardware.gpu' in the recipe"):
        written(tmp_path, gpu=None)


def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    script = written(tmp_path, first=("run", HOSTILE[0]))["run"]
    words = [linter("shellcheck"), "--shell=bash", "-"]
    assert subprocess.run(words, input=script, capture_output=True, text=True, check=False).stdout == ""
