"""`agym run --on`: which files it writes, what it submits, what it refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import Agym

RECIPE = "agym: 1\nname: mine\nextends: quickstart\n"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text(RECIPE, encoding="utf-8")
    # without the schedulers of this machine
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def client(folder: Path, name: str, code: int = 0) -> None:
    (folder / "bin").mkdir()
    file = folder / "bin" / name
    file.write_text(f'#!/bin/sh\necho "$0 took $*"\nexit {code}\n')
    file.chmod(0o755)


def test_a_job_file_is_written_next_to_the_runs_folder_and_the_command_shown(agym: Agym, tmp_path: Path) -> None:
    called = agym("run", "a.yaml", "--on", "slurm")
    assert called.code == 0, called.err
    assert called.out == (
        "wrote runs/mine.sbatch: 1 node, 6 cores and 13 GiB on each\n"
        "there is no sbatch on this machine; to submit it: sbatch runs/mine.sbatch\n"
    )
    text = (tmp_path / "runs/mine.sbatch").read_text()
    assert "  set -- run a.yaml\n" in text
    assert f"  set -- run {tmp_path}/runs/mine --resume\n" in text
    assert not (tmp_path / "runs/mine").exists()


def test_it_is_submitted_where_the_client_is_installed(agym: Agym, tmp_path: Path) -> None:
    client(tmp_path, "sbatch")
    assert agym("run", "a.yaml", "--on", "slurm").out.endswith("sbatch took runs/mine.sbatch\n")
    dry = agym("run", "a.yaml", "--on", "slurm", "--dry-run", "--job-file", "b.sbatch", "--job-option", "partition=gpu")
    assert dry.out.endswith("\nto submit it: sbatch b.sbatch\n")
    assert "#SBATCH --partition=gpu\n" in (tmp_path / "b.sbatch").read_text()


def test_a_client_that_refuses_the_job_fails_the_command(agym: Agym, tmp_path: Path) -> None:
    client(tmp_path, "sbatch", code=5)
    called = agym("run", "a.yaml", "--on", "slurm")
    assert called.code == 3
    assert "'sbatch runs/mine.sbatch' failed with exit code 5" in called.err


def test_settings_and_the_runs_of_a_matrix_go_into_the_job(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RECIPE + "matrix: {seed: [0, 1]}\n")
    assert agym("run", "a.yaml", "--on", "slurm", "--set", "description=$(x)").code == 0
    texts = [(tmp_path / f"runs/mine--seed={seed}.sbatch").read_text() for seed in (0, 1)]
    for number, text in enumerate(texts, 1):
        assert f"  set -- run a.yaml --run {number} --set 'description=$(x)'\n" in text


def test_a_secret_is_named_and_never_written(agym: Agym, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hush-hush")
    served = "environments: {one: {url: 'http://localhost:1', token: '${env:MY_TOKEN}'}}\n"
    (tmp_path / "a.yaml").write_text(
        "agym: 1\nname: mine\nextends: base/grpo-7b\nlogging: [wandb]\nhardware: {gpus_per_node: 1}\n"
        f"model: {{lora: {{}}}}\n{served}schedule: [{{stage: go, turns: 3, until: step >= 1}}]\n"
    )
    called = agym("run", "a.yaml", "--on", "slurm")
    assert called.code == 0, called.err
    text = (tmp_path / "runs/mine.sbatch").read_text()
    assert '"${MY_TOKEN:?' in text
    assert '"${WANDB_API_KEY:?' in text
    assert "hush-hush" not in text + called.out + called.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-", "--on", "slurm"), "a job cannot read standard input"),
        (("a.yaml", "--on", "slurm", "--fresh"), "move the run's folder aside"),
        (("a.yaml", "--on", "slrm"), "did you mean 'slurm'?"),
        (("a.yaml", "--on", "slurm", "--job-option", "partition"), "is not of the form KEY=VALUE"),
        (("a.yaml", "--on", "slurm", "--job-option", "comment=a\n#SBATCH --x"), "is not of the form KEY=VALUE"),
        (("a.yaml", "--dry-run"), "go with --on"),
        (("a.yaml", "--on", "slurm", "--job-file", "a.yaml"), "was not written by agym"),
    ],
)
def test_what_makes_no_sense_is_refused(agym: Agym, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    called = agym("run", *words, stdin=RECIPE.encode())
    assert (called.code, called.out) == (2, "")
    assert said in called.err
    assert (tmp_path / "a.yaml").read_text() == RECIPE
    assert not (tmp_path / "runs").exists() or os.listdir(tmp_path / "runs") == []


def test_a_run_that_is_there_is_continued_only_where_that_is_said(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "runs/mine").mkdir(parents=True)
    called = agym("run", "a.yaml", "--on", "slurm")
    assert called.code == 2
    assert "'runs/mine' is there already: say --resume to continue it" in called.err
    assert agym("run", "a.yaml", "--on", "slurm", "--resume").code == 0


# --- elsewhere -----------------------------------------------------------------------------------------------------

GPU = "agym: 1\nname: mine\nextends: agentgym-rl/textcraft-fixed\nhardware: {gpus_per_node: 1, gpu: b200}\n"
NEEDS = {"kubernetes": ("image=x/agym:1", "claim=c"), "skypilot": ("image=x/agym:1", "volume=v")}
FILES = {"kubernetes": "mine.rayjob.yaml", "skypilot": "mine.sky.yaml"}


def words_for(system: str) -> tuple[str, ...]:
    return ("--on", system, *(word for option in NEEDS[system] for word in ("--job-option", option)))


@pytest.mark.parametrize(("system", "recipe"), [("kubernetes", "/agym/recipe.yaml"), ("skypilot", "a.yaml")])
def test_the_run_is_on_the_volume_and_the_clusters_own_ray_is_joined(
    agym: Agym, tmp_path: Path, system: str, recipe: str
) -> None:
    (tmp_path / "a.yaml").write_text(GPU)
    called = agym("run", "a.yaml", *words_for(system), "--set", "seed=3")
    assert called.code == 0, called.err
    text = (tmp_path / "runs" / FILES[system]).read_text()
    own = "" if system == "kubernetes" else "--set seed=3 "
    settings = "--set output=/shared/runs --set hardware.ray_address=auto"
    assert f"  set -- run {recipe} {own}{settings}\n" in text
    assert "  set -- run /shared/runs/mine --resume\n" in text


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("kubernetes", "run /agym/recipe.yaml --set output=/shared/runs --set name=mine--seed-1"),
        ("skypilot", "run a.yaml --run 2 --set output=/shared/runs"),
    ],
)
def test_the_runs_of_a_matrix_have_a_folder_each(agym: Agym, tmp_path: Path, system: str, words: str) -> None:
    (tmp_path / "a.yaml").write_text(GPU + "matrix: {seed: [0, 1]}\n")
    assert agym("run", "a.yaml", *words_for(system)).code == 0
    text = (tmp_path / "runs" / FILES[system].replace("mine", "mine--seed=1")).read_text()
    folder = "/shared/runs/mine--seed-1" if system == "kubernetes" else "/shared/runs/mine--seed=1"
    assert f"  set -- {words} --set hardware.ray_address=auto\n" in text
    assert f"  set -- run {folder} --resume\n" in text


def test_a_folder_of_ones_own_is_found_in_the_copy_or_refused(agym: Agym, tmp_path: Path) -> None:
    assert agym("envs", "new", "my-env").code == 0
    project = tmp_path / "my-env"
    inside = agym("run", "recipe.yaml", *words_for("skypilot"), "--set", "hardware.launcher=ray", cwd=project)
    assert inside.code == 0, inside.err
    text = (project / "runs/my-env.sky.yaml").read_text()
    assert "-m agym" in text
    assert "run /shared/runs/my-env --resume --set 'environments.my_env.use=\"./my_env\"'\n" in text
    (project / "sub").mkdir()
    (project / "recipe.yaml").rename(project / "sub/recipe.yaml")
    words = ("--set", "environments.my_env.use=../my_env", "--set", "hardware.launcher=ray")
    outside = agym("run", "recipe.yaml", *words_for("skypilot"), *words, cwd=project / "sub")
    assert outside.code == 2, outside.out
    assert "'environments.my_env.use', '../my_env', is outside" in outside.err
    assert agym("run", "sub/recipe.yaml", "--on", "slurm", "--set", f"{words[1][:-9]}./my_env", cwd=project).code == 0


def test_the_clients_are_called_as_they_want_to_be(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GPU + "logging: [wandb]\n")
    called = agym("run", "a.yaml", *words_for("kubernetes"), "--dry-run")
    assert called.out.endswith("to submit it: kubectl apply --filename=runs/mine.rayjob.yaml\n")
    client(tmp_path, "sky")
    called = agym("run", "a.yaml", *words_for("skypilot"))
    line = "jobs launch --yes --detach-run --secret WANDB_API_KEY --secret RAY_AUTH_TOKEN runs/mine.sky.yaml"
    assert called.out.endswith(f"sky took {line}\n")


@pytest.mark.parametrize(
    ("recipe", "words", "said"),
    [
        (
            GPU,
            ("a.yaml", "--on", "kubernetes", "--job-option", "image=x"),
            "needs --job-option claim=..., a Persistent",
        ),
        (GPU, ("a.yaml", "--on", "kubernetes", "--job-option", "imgae=x"), "known: image, the container image"),
        (GPU, ("a.yaml", *words_for("kubernetes"), "--job-option", "mount=runs"), "an absolute path is needed"),
        (GPU + "agent: {prompt: ./p.txt}\n", ("a.yaml", *words_for("kubernetes")), "put it on the shared volume"),
        (RECIPE + "hardware: {launcher: inline}\n", ("a.yaml", *words_for("skypilot")), "remove the key"),
        (GPU, ("../a.yaml", *words_for("skypilot")), "'../a.yaml' is outside: call agym there"),
        (GPU, ("a.yaml", "--on", "ray"), "else say --on ray://HOST:PORT"),
        (GPU, ("a.yaml", "--on", "ray://a:10001"), "10001 is the port of Ray's client"),
        (GPU, ("a.yaml", "--on", "ray://a:b"), "is not of the form ray://HOST:PORT"),
        (
            GPU,
            ("a.yaml", "--on", "ray://127.0.0.1:1"),
            "no dashboard answers at http://127.0.0.1:1: connection refused",
        ),
        (GPU, ("a.yaml", "--on", "ray://a", "--job-file", "x"), "which takes no job file"),
    ],
)
def test_what_would_fail_there_is_refused_here(
    agym: Agym, tmp_path: Path, recipe: str, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "p.txt").touch()
    (tmp_path / "a.yaml").write_text(recipe)
    (tmp_path / "inner").mkdir()
    called = agym("run", *words, cwd=tmp_path / "inner" if words[0].startswith("..") else tmp_path)
    assert called.code == 2, called.err
    assert said in called.err


def test_a_job_of_a_running_cluster_is_shown_without_a_submission(agym: Agym, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GPU)
    called = agym("run", "a.yaml", "--on", "ray://head", "--dry-run")
    assert called.code == 0, called.err
    assert called.out.startswith("to submit it: ray job submit --address=http://head:8265 --working-dir=. ")
    assert '"RAY_JOB_STOP_WAIT_TIME_S": "600"' in called.out
    assert f"run a.yaml --set output={tmp_path}/runs --set hardware.ray_address=auto" in called.out
