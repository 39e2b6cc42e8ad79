"""The RayJob: fields that KubeRay documents, secrets by reference, texts of a recipe as data."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from agym.launch.job import JobError
from agym.launch.kubernetes import object_name, rayjob_yaml

from .conftest import TWO_NODES, Clients, job_of
from .test_slurm import HOSTILE

OPTIONS = {"image": "registry/agym:1", "claim": "runs"}
DOCUMENTED = {
    "spec": {
        "entrypoint",
        "submissionMode",
        "backoffLimit",
        "shutdownAfterJobFinishes",
        "ttlSecondsAfterFinished",
        "rayClusterSpec",
    },
    "spec.rayClusterSpec": {"authOptions", "headGroupSpec", "workerGroupSpecs"},
    "spec.rayClusterSpec.authOptions": {"mode"},
    "spec.rayClusterSpec.headGroupSpec": {"rayStartParams", "template"},
    "spec.rayClusterSpec.workerGroupSpecs": {
        "groupName",
        "replicas",
        "minReplicas",
        "maxReplicas",
        "rayStartParams",
        "template",
    },
}
"""Of KubeRay 1.6's reference of ray.io/v1; `bench/job_files.py` checks the whole of a file against its CRD."""


def written(folder: Path, recipe: str = "agym: 1\n", **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    text = rayjob_yaml(job_of(TWO_NODES, folder, **changes), recipe, OPTIONS, command="agym run r.yaml")
    configuration, job = yaml.safe_load_all(text)
    return configuration, job


def pods(job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    cluster = job["spec"]["rayClusterSpec"]
    yield cluster["headGroupSpec"]["template"]["spec"]
    for group in cluster["workerGroupSpecs"]:
        yield group["template"]["spec"]


def test_every_field_is_documented(tmp_path: Path) -> None:
    _, job = written(tmp_path)
    for path, fields in DOCUMENTED.items():
        found = job
        for key in path.split("."):
            found = found[key]
        for each in found if isinstance(found, list) else [found]:
            assert set(each) == fields, path


def test_every_pod_has_the_plans_gpus_and_the_shared_volume(tmp_path: Path) -> None:
    _, job = written(tmp_path)
    assert job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] == 1
    for pod in pods(job):
        (container,) = pod["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
        mounted = {each["mountPath"] for each in container["volumeMounts"]}
        assert mounted == {str(tmp_path), "/agym", "/dev/shm"}
        assert {each["name"] for each in pod["volumes"]} == {each["name"] for each in container["volumeMounts"]}


def test_variables_are_references_to_a_secret(tmp_path: Path) -> None:
    _, job = written(tmp_path, variables=("WANDB_API_KEY",))
    for pod in pods(job):
        wanted = {"secretKeyRef": {"name": "two-variables", "key": "WANDB_API_KEY"}}
        assert {"name": "WANDB_API_KEY", "valueFrom": wanted} in pod["containers"][0]["env"]


@pytest.mark.parametrize("text", [*HOSTILE, "key: [", "a: |\n  b", "\ttab ", "${env:X}"])
def test_texts_of_a_recipe_stay_texts(text: str, clients: Clients, tmp_path: Path) -> None:
    configuration, job = written(tmp_path, f"name: {text}\n", first=("run", "r.yaml", "--set", text))
    assert configuration["data"]["recipe.yaml"] == f"name: {text}\n"
    assert job["spec"]["entrypoint"] == "bash /agym/driver.sh"
    clients.add("python3")
    subprocess.run(["bash", "-c", configuration["data"]["driver.sh"]], cwd=tmp_path, env=clients.environ, check=True)
    assert f"-m agym run r.yaml --set {text.replace(chr(10), '⏎')}" in clients.log.read_text()
    assert not (tmp_path / "made").exists()


def test_an_option_that_is_needed_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"--job-option claim=\.\.\., a PersistentVolumeClaim"):
        rayjob_yaml(job_of(TWO_NODES, tmp_path), "", {"image": "x"}, command="")


def test_options_reach_the_pods(tmp_path: Path) -> None:
    options = {**OPTIONS, "gpu-product": "NVIDIA-H100-80GB-HBM3", "service-account": "trainer", "namespace": "rl"}
    *_, job = yaml.safe_load_all(rayjob_yaml(job_of(TWO_NODES, tmp_path), "", options, command=""))
    assert job["metadata"]["namespace"] == "rl"
    for pod in pods(job):
        assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
        assert pod["serviceAccountName"] == "trainer"


@pytest.mark.parametrize("name", ["mine", "mine--seed=0", "a" * 90, "a.b_c", "9"])
def test_a_name_becomes_one_that_kubernetes_allows(name: str) -> None:
    made = object_name(name)
    assert len(made) <= 40
    assert made.replace("-", "a").isalnum()
    assert made == made.lower().strip("-")


def test_names_that_differ_stay_different() -> None:
    assert len({object_name(name) for name in ("a.b", "a_b", "a-b", "a--b")}) == 4
