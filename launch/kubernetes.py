"""Job -> a RayJob of KubeRay (ray.io/v1), with a ConfigMap that holds the resolved recipe and the driver's script.

The entrypoint goes through two shells, KubeRay's and Ray's; all that could need quotes is in the script.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import Any

from .job import Job, JobError, dump_yaml, one_line, run_or_resume

__all__ = ["KUBERNETES_OPTIONS", "MOUNTED_RECIPE", "object_name", "rayjob_yaml"]

KUBERNETES_OPTIONS: Mapping[str, str] = {
    "image": "the container image, made of docker/Dockerfile (required)",
    "claim": "a PersistentVolumeClaim that all pods can write, for runs and models (required)",
    "mount": "where the claim is mounted (default: /shared)",
    "secret": "the Secret with the recipe's environment variables (default: NAME-variables)",
    "namespace": "the namespace",
    "service-account": "the pods' service account",
    "gpu-product": "value of the node label nvidia.com/gpu.product that pods must run on",
    "retries": "how often the whole job is tried again (default: 3)",
}
_FOLDER = "/agym"
MOUNTED_RECIPE = f"{_FOLDER}/recipe.yaml"
_MAX_NAME = 40
"""KubeRay adds to the name, and a label holds 63 characters."""


def object_name(name: str) -> str:
    """The job's name in the form that Kubernetes allows: different names stay different."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if plain == name and len(plain) <= _MAX_NAME:
        return plain
    return f"{plain[: _MAX_NAME - 9].strip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def rayjob_yaml(job: Job, recipe: str, options: Mapping[str, str], *, command: str) -> str:
    missing = [name for name in ("image", "claim") if name not in options]
    if missing:
        lacking = "; ".join(f"--job-option {name}=..., {KUBERNETES_OPTIONS[name]}" for name in missing)
        raise JobError(f"a job on Kubernetes needs {lacking}")
    name = object_name(job.name)
    meta = {"name": name, **({"namespace": options["namespace"]} if "namespace" in options else {})}
    script = f"#!/usr/bin/env bash\nset -euo pipefail\ncd -- {shlex.quote(job.folder)}\n{run_or_resume(job)}\n"
    documents: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta,
            "data": {"recipe.yaml": recipe, "driver.sh": f'{script}exec python3 -m agym "$@"\n'},
        },
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta, "spec": _spec(job, name, options)},
    ]
    needed = f"# The Secret must hold: {', '.join(job.variables)}\n" if job.variables else ""
    return (
        f"# Written by: {one_line(command)}\n"
        f"# Begins the run, or continues it where its folder exists on the claim.\n{needed}"
        f"{dump_yaml(documents)}"
    )


def _spec(job: Job, name: str, options: Mapping[str, str]) -> dict[str, Any]:
    retries = options.get("retries", "3")
    if not retries.isdecimal():
        raise JobError(f"--job-option retries={retries}: a whole number is needed")
    workers = {
        "groupName": "workers",
        "replicas": job.nodes - 1,
        "minReplicas": job.nodes - 1,
        "maxReplicas": job.nodes - 1,
        "rayStartParams": {},
        "template": _pod(job, name, options, "ray-worker"),
    }
    return {
        "entrypoint": f"bash {_FOLDER}/driver.sh",
        "submissionMode": "K8sJobMode",
        "backoffLimit": int(retries),
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 600,
        "rayClusterSpec": {
            "authOptions": {"mode": "token"},
            "headGroupSpec": {"rayStartParams": {}, "template": _pod(job, name, options, "ray-head")},
            "workerGroupSpecs": [workers] if job.nodes > 1 else [],
        },
    }


def _pod(job: Job, name: str, options: Mapping[str, str], container: str) -> dict[str, Any]:
    limits: dict[str, Any] = {"cpu": str(job.cpus_per_node), "memory": f"{job.memory_gib}Gi"}
    if job.gpus_per_node:
        limits["nvidia.com/gpu"] = job.gpus_per_node
    secret = options.get("secret", f"{name}-variables")
    spec: dict[str, Any] = {
        "containers": [
            {
                "name": container,
                "image": options["image"],
                "resources": {"requests": dict(limits), "limits": limits},
                "env": [
                    {"name": "HF_HOME", "value": f"{job.folder}/huggingface"},
                    *(
                        {"name": each, "valueFrom": {"secretKeyRef": {"name": secret, "key": each}}}
                        for each in job.variables
                    ),
                ],
                "volumeMounts": [
                    {"name": "shared", "mountPath": job.folder},
                    {"name": "job", "mountPath": _FOLDER, "readOnly": True},
                    {"name": "shm", "mountPath": "/dev/shm"},
                ],
            }
        ],
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": options["claim"]}},
            {"name": "job", "configMap": {"name": name}},
            # Ray's object store is a third of the memory
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{job.memory_gib // 2}Gi"}},
        ],
    }
    if "service-account" in options:
        spec["serviceAccountName"] = options["service-account"]
    if "gpu-product" in options:
        spec["nodeSelector"] = {"nvidia.com/gpu.product": options["gpu-product"]}
    return {"spec": spec}
