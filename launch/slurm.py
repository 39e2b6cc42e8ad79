"""Job -> sbatch script: Ray on all nodes where the run needs it, SIGTERM passed on to the driver, requeue and resume.

`ray symmetric-run` would start Ray too, but a SIGTERM ends it at once, and with it the driver that should save. Nor may
the driver be ended through srun, which answers SIGTERM with SIGKILL for its tasks.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from .job import Job, one_line, run_or_resume, splice

__all__ = ["sbatch_script"]

_GRACE_S = 300
"""Seconds between SIGTERM and the time limit: for the step that is under way, and a save."""

_JOIN_S = 300
"""Seconds for all nodes to join the cluster: the first import of Ray from a shared folder takes minutes."""

_STEP = "srun --overlap --ntasks-per-node=1"
_DRIVER = "agym-driver"
_END_STEP = (
    """scancel --signal=TERM "$(squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format='%i %j' |"""
    f""" awk '$2 == "{_DRIVER}" {{ print $1 }}')\""""
)
"""Sends the signal to the driver's step in its container."""


def sbatch_script(job: Job, options: Mapping[str, str], *, command: str, python: str) -> str:
    """Write the script; `options` are those of sbatch, and `image`, a container that Pyxis starts."""
    asked = dict(options)
    image = asked.pop("image", None)
    return splice(
        _SCRIPT,
        {
            "COMMAND": one_line(command),
            "SETTINGS": "".join(
                f"#SBATCH --{key}={shlex.quote(value)}\n" for key, value in (_settings(job) | asked).items()
            ),
            "VARIABLES": "".join(_required(job.variables)),
            "FOLDER": shlex.quote(job.folder),
            "PYTHON": "python3" if image else shlex.quote(python),
            "STEP": f"step=({_STEP}{_container(job, image) if image else ''})\n" if image or job.needs_cluster else "",
            "ON_HEAD": '"${step[@]}" --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME"' if image else "",
            "NAMED": f" --job-name={_DRIVER}" if image else "",
            "END_DRIVER": _END_STEP if image else 'kill -TERM "$driver"',
            "ARGUMENTS": run_or_resume(job),
            "RAY": _start_ray(job) if job.needs_cluster else "",
        },
    )


def _settings(job: Job) -> dict[str, str]:
    return {
        "job-name": job.name,
        "nodes": str(job.nodes),
        "ntasks-per-node": "1",
        **({"gpus-per-node": str(job.gpus_per_node)} if job.gpus_per_node else {}),
        "cpus-per-task": str(job.cpus_per_node),
        "mem": f"{job.memory_gib}G",
        "output": job.run_folder.replace("%", "%%") + "-%j.log",
        "open-mode": "append",
        "signal": f"B:TERM@{_GRACE_S}",
    }


def _required(variables: Iterable[str]) -> Iterable[str]:
    return (f': "${{{name}:?the recipe reads it: set it where you call sbatch}}"\n' for name in variables)


def _container(job: Job, image: str) -> str:
    folder, mount = shlex.quote(job.folder), shlex.quote(f"{job.folder}:{job.folder}")
    return f" --container-image={shlex.quote(image)} --container-mounts={mount} --container-workdir={folder}"


def _start_ray(job: Job) -> str:
    # an option of the command line may ask for a different number of cores than the plan
    resources = f'--num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus={job.gpus_per_node}'
    words = {
        "WORKERS": str(job.nodes - 1),
        "NODES": str(job.nodes),
        "RESOURCES": resources,
        "JOIN_S": str(_JOIN_S),
        "COUNT_NODES": _COUNT_NODES,
    }
    workers = splice(_RAY_WORKERS, words) if job.nodes > 1 else ""
    see_from = "--exclude" if job.nodes > 1 else "--nodelist"
    return splice(_RAY_HEAD, {"RESOURCES": resources, "SEE_FROM": see_from, "START_WORKERS": workers})


_SCRIPT = """\
#!/usr/bin/env bash
# Written by: @COMMAND@
# Begins the run, or continues it where its folder exists. The folder, Python and models must be the same on all nodes.
@SETTINGS@#SBATCH --requeue
set -euo pipefail
@VARIABLES@
cd -- @FOLDER@
# shellcheck disable=SC2016
@ARGUMENTS@

python=@PYTHON@
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
@STEP@on_head=(@ON_HEAD@)

# SLURM sends SIGTERM here before the time limit and at preemption: agym finishes its step and saves. Whoever cancels
# the job signals the driver too, for which a second signal would mean not to save, and wants no requeue.
driver=
stopping=
signalled=
is_running() { [ "$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)" = RUNNING ]; }
# shellcheck disable=SC2329
end_driver() {
  if [ -z "$driver" ] || [ -n "$signalled" ]; then return; fi
  signalled=1
  if is_running; then @END_DRIVER@ || true; fi
}
trap 'stopping=1; end_driver' TERM

finish() {
  if [ -n "$stopping" ] && { [ "$1" -eq 130 ] || [ "$1" -eq 143 ]; } && is_running; then
    echo "agym: saved; requeueing job $SLURM_JOB_ID" >&2
    scontrol requeue "$SLURM_JOB_ID"
  fi
  exit "$1"
}
@RAY@
if [ -n "$stopping" ]; then finish 143; fi
"${on_head[@]}"@NAMED@ "$python" -m agym "$@" &
driver=$!
# a signal that came before this script knew the driver
if [ -n "$stopping" ]; then end_driver; fi
# a signal ends a wait before it ends the driver
wait "$driver" || true
while kill -0 "$driver" 2>/dev/null; do wait "$driver" || true; done
code=0
wait "$driver" || code=$?
finish "$code"
"""

_RAY_HEAD = """
# a cluster of this job alone: its own port, folder and token, which nobody else can read
token=$PWD/.agym-ray-token-$SLURM_JOB_ID
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$token RAY_USAGE_STATS_ENABLED=0
trap 'rm -f -- "$token"; jobs -p | xargs --no-run-if-empty kill 2>/dev/null || true' EXIT
(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' >"$token")

# the address by which other nodes reach this one: here its name may mean the loopback
port=$((20000 + SLURM_JOB_ID % 20000))
head_ip=$(srun --overlap --nodes=1 --ntasks=1 @SEE_FROM@="$SLURMD_NODENAME" getent ahostsv4 "$SLURMD_NODENAME" |
  awk 'NR == 1 { print $1 }')
export RAY_ADDRESS="$head_ip:$port"
"${on_head[@]}" "$python" -m ray.scripts.scripts start --head --block --node-ip-address="$head_ip" --port="$port" \\
  --temp-dir="/tmp/agym-$SLURM_JOB_ID" @RESOURCES@ &
head=$!
until "${on_head[@]}" "$python" -m ray.scripts.scripts health-check --address "$RAY_ADDRESS" >/dev/null 2>&1; do
  if [ -n "$stopping" ]; then finish 143; fi
  if [ "$SECONDS" -gt 180 ] || ! kill -0 "$head" 2>/dev/null; then
    echo "agym: Ray did not start at $RAY_ADDRESS within 180 s; its logs: /tmp/agym-$SLURM_JOB_ID there" >&2
    exit 1
  fi
  sleep 2
done
@START_WORKERS@"""

_RAY_WORKERS = """\
"${step[@]}" --nodes=@WORKERS@ --ntasks=@WORKERS@ --exclude="$SLURMD_NODENAME" \\
  "$python" -m ray.scripts.scripts start --block --address="$RAY_ADDRESS" @RESOURCES@ &
workers=$!

# the driver itself waits only two minutes for room
count_nodes() {
  timeout 60 "${on_head[@]}" "$python" -c '@COUNT_NODES@' 2>/dev/null | tail -n 1 | grep -x '[0-9][0-9]*' || echo 0
}
begun=$SECONDS
until joined=$(count_nodes) && [ "$joined" -ge @NODES@ ]; do
  if [ -n "$stopping" ]; then finish 143; fi
  if [ $((SECONDS - begun)) -gt @JOIN_S@ ] || ! kill -0 "$workers" 2>/dev/null; then
    echo "agym: $joined of @NODES@ nodes are in the Ray cluster at $RAY_ADDRESS after $((SECONDS - begun)) s; the" \\
      "messages of the others are above, and in /tmp/ray on each; they need a route to port $port of that address" >&2
    exit 1
  fi
  sleep 2
done
"""
_COUNT_NODES = (
    'import ray; ray.init(log_to_driver=False, logging_level="ERROR"); '
    'print(sum(node["Alive"] for node in ray.nodes()))'
)
"""Joins the cluster at `RAY_ADDRESS`."""
