"""The sbatch script: what it asks for, and what it does, run by bash with clients that log their calls."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agym.launch.job import Job
from agym.launch.slurm import sbatch_script

from .conftest import TWO_NODES, Clients, job_of, linter

ONE_MACHINE = "agym: 1\nname: one\nextends: quickstart\n"
WAIT_S = 60
"""Longer than any step takes: a test that waits so long fails."""
AGYM = (
    'if [ "$2" != agym ]; then',
    """  if [ "$1" = -c ]; then echo "2026-01-01 INFO"; cat "${JOINED:-$0.joined}"; fi""",
    """  if [[ -n "${WORKERS_END:-}" && " $* " == *" start --block --address"* ]]; then exit 1; fi""",
    """  [[ " $* " == *" --block "* ]] && { trap 'kill $!; exit 0' TERM; sleep 20 >/dev/null 2>&1 & wait; }""",
    "  exit 0",
    "fi",
    # as agym: it finishes its step
    """trap 'echo TERM >>"${SIGNALS:-/dev/null}"; kill $!; sleep 0.3; exit 130' TERM""",
    'echo $$ >"$STARTED"',
    'if [ -n "${CODE:-}" ]; then exit "$CODE"; fi',
    "sleep 60 >/dev/null 2>&1 & wait",
)


@pytest.fixture
def slurm(clients: Clients) -> Clients:
    # as the real one: a SIGTERM of its own is a SIGKILL of its tasks
    clients.add(
        "srun",
        'while [[ "$1" == --* ]]; do shift; done',
        '"$@" & task=$!',
        "trap 'kill -KILL $task' TERM",
        "wait $task; code=$?",
        "while kill -0 $task 2>/dev/null; do wait $task; code=$?; done",
        "exit $code",
    )
    clients.add("scontrol")
    clients.add("squeue", '[[ "$*" == *--steps* ]] && echo "7.2 agym-driver" || echo "${STATE:-RUNNING}"')
    clients.add("scancel", 'kill -TERM "$(cat "$STARTED")"')
    for name in ("python", "python3"):
        clients.add(name, *AGYM).with_name(f"{name}.joined").write_text("2\n")
    return clients


def script_of(job: Job, slurm: Clients, image: str = "") -> str:
    options = {"image": image} if image else {}
    return sbatch_script(job, options, command="agym run r.yaml --on slurm", python=str(slurm.folder / "python"))


def start(job: Job, slurm: Clients, tmp_path: Path, image: str = "", **environ: str) -> subprocess.Popen[str]:
    return start_script(script_of(job, slurm, image), slurm, tmp_path, **environ)


def start_script(text: str, slurm: Clients, tmp_path: Path, **environ: str) -> subprocess.Popen[str]:
    file = tmp_path / "job.sbatch"
    file.write_text(text)
    variables = {
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURMD_NODENAME": "localhost",
        "STARTED": str(tmp_path / "started"),
    }
    return subprocess.Popen(
        ["bash", file],
        env={**slurm.environ, **variables, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_until(ready: Callable[[], object], job: subprocess.Popen[str]) -> None:
    last = time.monotonic() + WAIT_S
    while not ready():
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < last, "it did not come to that"
        time.sleep(0.02)


def has_text(file: Path) -> bool:
    return file.exists() and bool(file.read_text())


def end(job: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = job.communicate(timeout=WAIT_S)
    return job.returncode, said


@pytest.mark.parametrize("text", [ONE_MACHINE, TWO_NODES], ids=["one machine", "two nodes"])
def test_a_job_runs_agym_and_ends_as_it_ends(text: str, slurm: Clients, tmp_path: Path) -> None:
    for code in ("0", "3"):
        assert end(start(job_of(text, tmp_path), slurm, tmp_path, CODE=code))[0] == int(code)
    assert slurm.calls("python").count("-m agym run r.yaml") == 2
    assert slurm.calls("scontrol") == []


def started_rays(slurm: Clients) -> list[str]:
    return [call for call in slurm.calls("python") if " start " in call]


def test_two_nodes_are_one_ray_cluster_with_a_token_and_the_plans_gpus(slurm: Clients, tmp_path: Path) -> None:
    job = start(job_of(TWO_NODES, tmp_path), slurm, tmp_path)
    wait_until(lambda: has_text(tmp_path / "started") and len(started_rays(slurm)) == 2, job)
    job.send_signal(signal.SIGTERM)
    end(job)
    # which of the two comes first is theirs
    worker, head = sorted(started_rays(slurm), key=lambda call: "--head" in call)
    assert "--head --block --node-ip-address=127.0.0.1 --port=20007" in head
    assert "--address=127.0.0.1:20007" in worker
    assert all("--num-gpus=8" in call for call in (head, worker))
    assert any("--exclude=localhost" in call and " start " in call for call in slurm.calls("srun"))
    assert not list(tmp_path.glob(".agym-ray-token*"))


def test_the_driver_begins_when_all_nodes_have_joined(slurm: Clients, tmp_path: Path) -> None:
    joined = tmp_path / "joined"
    joined.write_text("1\n")
    job = start(job_of(TWO_NODES, tmp_path), slurm, tmp_path, CODE="0", JOINED=str(joined))
    counted = lambda: [call for call in slurm.calls("python") if "ray.nodes()" in call]  # noqa: E731
    wait_until(lambda: len(counted()) > 1, job)
    assert "-m agym run r.yaml" not in slurm.calls("python")
    joined.write_text("2\n")
    assert end(job)[0] == 0
    assert slurm.calls("python")[-1] == "-m agym run r.yaml"


def test_a_job_whose_other_nodes_never_join_ends_with_their_number(slurm: Clients, tmp_path: Path) -> None:
    (tmp_path / "joined").write_text("1\n")
    job = start(job_of(TWO_NODES, tmp_path), slurm, tmp_path, JOINED=str(tmp_path / "joined"), WORKERS_END="1")
    code, said = end(job)
    assert code == 1
    assert "agym: 1 of 2 nodes are in the Ray cluster at 127.0.0.1:20007 after" in said
    assert "-m agym run r.yaml" not in slurm.calls("python")


def test_a_job_whose_folder_exists_resumes(slurm: Clients, tmp_path: Path) -> None:
    (tmp_path / "runs/one").mkdir(parents=True)
    (tmp_path / "runs/one/plan.json").touch()
    end(start(job_of(ONE_MACHINE, tmp_path), slurm, tmp_path, CODE="0"))
    assert slurm.calls("python") == [f"-m agym run {tmp_path}/runs/one --resume"]


@pytest.mark.parametrize("text", [ONE_MACHINE, TWO_NODES], ids=["one machine", "two nodes"])
@pytest.mark.parametrize("image", ["", "docker://agym:1"], ids=["bare", "container"])
def test_sigterm_reaches_the_driver_and_requeues_the_job(text: str, image: str, slurm: Clients, tmp_path: Path) -> None:
    job = start(job_of(text, tmp_path), slurm, tmp_path, image)
    wait_until(lambda: has_text(tmp_path / "started"), job)
    job.send_signal(signal.SIGTERM)
    assert end(job)[0] == 130
    assert slurm.calls("scontrol") == ["requeue 7"]
    assert slurm.calls("scancel") == (["--signal=TERM 7.2"] if image else [])


def test_a_signal_that_comes_before_the_script_knows_its_driver_is_passed_on(slurm: Clients, tmp_path: Path) -> None:
    text = script_of(job_of(ONE_MACHINE, tmp_path), slurm)
    before = "driver=$!\n"
    assert text.count(before) == 1
    signalled = text.replace(before, f'until [ -s "$STARTED" ]; do sleep 0.02; done; kill -TERM $$\n{before}')
    job = start_script(signalled, slurm, tmp_path, SIGNALS=str(tmp_path / "signals"))
    assert end(job)[0] == 130
    assert (tmp_path / "signals").read_text() == "TERM\n"
    assert slurm.calls("scontrol") == ["requeue 7"]


def test_a_job_that_is_cancelled_gets_no_second_signal_and_is_not_requeued(slurm: Clients, tmp_path: Path) -> None:
    job = start(job_of(ONE_MACHINE, tmp_path), slurm, tmp_path, STATE="CANCELLED", SIGNALS=str(tmp_path / "signals"))
    wait_until(lambda: has_text(tmp_path / "started"), job)
    for process in (job.pid, int((tmp_path / "started").read_text())):
        os.kill(process, signal.SIGTERM)
    assert end(job)[0] == 130
    assert (tmp_path / "signals").read_text() == "TERM\n"
    assert slurm.calls("scontrol") == []


def test_a_variable_that_the_recipe_reads_is_asked_for_by_name(slurm: Clients, tmp_path: Path) -> None:
    job = job_of(ONE_MACHINE, tmp_path, variables=("AGYM_NO_SUCH_KEY",))
    code, said = end(start(job, slurm, tmp_path))
    assert code != 0
    assert "AGYM_NO_SUCH_KEY: the recipe reads it: set it where you call sbatch" in said
    assert slurm.calls("python") == []


HOSTILE = ("$(touch made)", "`touch made`", "a'; touch made; '", 'a"; touch made; "', "a\ntouch made", "@RAY@", "-n")


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_a_recipe_is_never_run(text: str, slurm: Clients, tmp_path: Path) -> None:
    job = job_of(ONE_MACHINE, tmp_path, first=("run", "r.yaml", "--set", text))
    script = sbatch_script(job, {"comment": text.replace("\n", " ")}, command=f"agym run {text}", python="python")
    (tmp_path / "job.sbatch").write_text(script)
    assert end(start(job, slurm, tmp_path, CODE="0"))[0] == 0
    assert not (tmp_path / "made").exists()
    assert f"-m agym run r.yaml --set {text.replace(chr(10), '⏎')}" in slurm.log.read_text()
    assert all(line.startswith(("#", "set -euo")) for line in head_of(script))


def head_of(script: str) -> Iterator[str]:
    for line in script.splitlines():
        yield line
        if not line.startswith("#"):
            return


def test_what_the_plan_needs_is_asked_for_and_options_of_the_command_line_win(tmp_path: Path) -> None:
    script = sbatch_script(job_of(TWO_NODES, tmp_path), {"mem": "0", "partition": "a b"}, command="", python="python")
    asked = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")]
    assert {"nodes=2", "gpus-per-node=8", "mem=0", "partition='a b'", "requeue", "signal=B:TERM@300"} <= set(asked)
    # eight engines and eight ranks, four cores each; the servers of three environments at each engine, and two to spare
    assert "cpus-per-task=90" in asked


def test_a_container_mounts_the_folder(tmp_path: Path) -> None:
    script = sbatch_script(job_of(ONE_MACHINE, tmp_path), {"image": "docker://agym:1"}, command="", python="/x/python")
    assert f"--container-image=docker://agym:1 --container-mounts={tmp_path}:{tmp_path}" in script
    assert "python=python3\n" in script


@pytest.mark.parametrize("image", ["", "docker://agym:1"], ids=["bare", "container"])
@pytest.mark.parametrize("text", [ONE_MACHINE, TWO_NODES], ids=["one machine", "two nodes"])
def test_shellcheck_finds_nothing(text: str, image: str, tmp_path: Path) -> None:
    job = job_of(text, tmp_path, variables=("A_KEY",), first=("run", HOSTILE[0]))
    script = sbatch_script(job, {"image": image} if image else {}, command="agym run r.yaml", python="/a b/python")
    done = subprocess.run([linter("shellcheck"), "-"], input=script, capture_output=True, text=True, check=False)
    assert done.stdout == ""
