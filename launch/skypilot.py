"""Job -> a SkyPilot task: Ray on all nodes, the driver on the first; a managed job that is recovered resumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..dsl.model.recipe import Gpu
from .job import Job, JobError, dump_yaml, one_line, run_or_resume, splice

__all__ = ["RAY_TOKEN", "SKYPILOT_OPTIONS", "sky_yaml"]

SKYPILOT_OPTIONS: Mapping[str, str] = {
    "image": "the container image, made of docker/Dockerfile (required)",
    "volume": "a SkyPilot volume that all nodes can write, for runs and models (required)",
    "mount": "where the volume is mounted (default: /shared)",
    "infra": "where to run, such as kubernetes or aws/us-east-1",
    "spot": "true for nodes that may be taken away",
}
RAY_TOKEN = "RAY_AUTH_TOKEN"
_GPUS: Mapping[Gpu, str] = {
    Gpu.A10: "A10",
    Gpu.L4: "L4",
    Gpu.L40S: "L40S",
    Gpu.A100_40: "A100",
    Gpu.A100_80: "A100-80GB",
    Gpu.H100: "H100",
    Gpu.H200: "H200",
    Gpu.B200: "B200",
    Gpu.RTX_4090: "RTX4090",
}
"""SkyPilot's names of the GPUs."""


def sky_yaml(job: Job, options: Mapping[str, str], *, command: str) -> str:
    missing = [name for name in ("image", "volume") if name not in options]
    if missing:
        lacking = "; ".join(f"--job-option {name}=..., {SKYPILOT_OPTIONS[name]}" for name in missing)
        raise JobError(f"a SkyPilot job needs {lacking}")
    if job.gpus_per_node and job.gpu is None:
        raise JobError("SkyPilot chooses machines by the model of their GPUs: write 'hardware.gpu' in the recipe")
    secrets = (*job.variables, RAY_TOKEN)
    task: dict[str, Any] = {
        "name": job.name,
        "num_nodes": job.nodes,
        "resources": _resources(job, options),
        "workdir": ".",
        "volumes": {job.folder: options["volume"]},
        "envs": {"HF_HOME": f"{job.folder}/huggingface"},
        "secrets": dict.fromkeys(secrets),
        "run": splice(
            _RUN,
            {
                "ARGUMENTS": run_or_resume(job),
                "RESOURCES": f"--num-cpus={job.cpus_per_node} --num-gpus={job.gpus_per_node}",
            },
        ),
    }
    return (
        f"# Written by: {one_line(command)}\n"
        f"# Begins the run, or continues it where its folder exists on the volume.\n"
        f"{dump_yaml([task])}"
    )


def _resources(job: Job, options: Mapping[str, str]) -> dict[str, Any]:
    wanted: dict[str, Any] = {"cpus": f"{job.cpus_per_node}+", "memory": f"{job.memory_gib}+"}
    if job.gpu is not None and job.gpus_per_node:
        wanted["accelerators"] = f"{_GPUS[job.gpu]}:{job.gpus_per_node}"
    wanted["image_id"] = f"docker:{options['image']}"
    if "infra" in options:
        wanted["infra"] = options["infra"]
    if "spot" in options:
        wanted["use_spot"] = options["spot"] == "true"
    return wanted


_RUN = """\
set -euo pipefail
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
head_ip=$(printf '%s\\n' "$SKYPILOT_NODE_IPS" | awk 'NR == 1')
# SkyPilot has a Ray of its own, which this one must neither join nor stop
export RAY_ADDRESS="$head_ip:6479"
ray=(python3 -m ray.scripts.scripts)
wait_for_ray() {
  until "${ray[@]}" health-check --address "$RAY_ADDRESS" >/dev/null 2>&1; do
    if [ "$SECONDS" -gt 600 ]; then
      echo "agym: Ray did not answer at $RAY_ADDRESS within 600 s" >&2
      exit 1
    fi
    sleep 2
  done
}
if [ "$SKYPILOT_NODE_RANK" -ne 0 ]; then
  wait_for_ray
  # it ends with the first node, whose exit code is that of the run
  "${ray[@]}" start --block --address="$RAY_ADDRESS" @RESOURCES@ || true
  exit 0
fi
# shellcheck disable=SC2016
@ARGUMENTS@
"${ray[@]}" start --head --block --node-ip-address="$head_ip" --port=6479 --temp-dir=/tmp/agym @RESOURCES@ &
head=$!
trap 'kill "$head" 2>/dev/null || true' EXIT
wait_for_ray
python3 -m agym "$@"
"""
