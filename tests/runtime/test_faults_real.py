"""Whole processes with the real engines, and things done to them: what a person sees, and what a resume finds."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tokenizers  # noqa: F401 - engines are needed, and this is the quickest to ask for
from agym.envs.registry import factory

from ..engine_server import EngineServer, Process
from .unruly import served

pytestmark = pytest.mark.heavy

RECIPE = """
agym: 1
name: small
model: {init: {layers: 2, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {kind: word, vocab: 320}}}
environments: {textcraft: {%s}}
agent: {format: plain, tokens_per_turn: 16, context_tokens: 256}
algorithm: {use: grpo, group_size: 4, groups_per_step: 4, groups_per_update: 2, lr: 1e-3, filter: true == true}
rollout: {step_timeout_s: 5}
schedule:
  - {stage: imitate, until: step >= 50, algorithm: {use: sft, batch_size: 16, lr: 1e-2, data: {limit: 60}}}
  - {stage: exploit, turns: 3, until: step >= 4}
eval: {every: 52, at_start: false, limit: 8, turns: 3}
checkpoint: {every: 51}
"""
TEXTCRAFT = {"world": "small", "terse": True}
INSIDE = "use: textcraft, options: {world: small, terse: true}"
MINUTES = 300
RUN = ("-m", "agym", "run", "recipe.yaml")


@dataclass(slots=True)
class Called:
    """`agym run` in a folder of its own."""

    folder: Path
    engines: EngineServer
    process: Process | subprocess.Popen[str] | None = None

    def start(self, *words: str) -> Process:
        self.process = self.engines.start(*RUN, *words, cwd=self.folder, session=True)
        return self.process

    def start_anew(self) -> None:
        """In a process that imports the engines itself, and plugins of theirs."""
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, *RUN], cwd=self.folder, stdout=pipe, stderr=subprocess.STDOUT, text=True, process_group=0
        )

    def ended(self, code: int) -> list[str]:
        """What was said, once the process has ended with that code."""
        assert self.process is not None
        out, _ = self.process.communicate(timeout=MINUTES)
        assert self.process.returncode == code, out[-4000:]
        assert "Traceback" not in out, out[-4000:]
        return out.splitlines()

    def run(self, *words: str, code: int = 0) -> list[str]:
        self.start(*words)
        return self.ended(code)

    def rows(self) -> list[dict[str, Any]]:
        files = list(self.folder.glob("runs/small/metrics.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines() if line.endswith("}")]

    def wait_for(self, step: int) -> None:
        assert self.process is not None
        deadline = time.monotonic() + MINUTES
        while not any(row["total_step"] >= step for row in self.rows()):
            assert self.process.poll() is None, self.process.communicate()[0][-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def called(engines: EngineServer, tmp_path: Path) -> Iterator[Callable[..., Called]]:
    made: list[Called] = []

    def make(environment: str = INSIDE, folder: Path | None = None) -> Called:
        made.append(Called(folder or tmp_path, engines))
        (made[-1].folder / "recipe.yaml").write_text(RECIPE % environment)
        return made[-1]

    yield make
    for each in made:
        if each.process is not None and each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.communicate()


def summed(called: Called, name: str) -> float:
    return sum(row.get(name, 0) for row in called.rows())


def errors(said: list[str]) -> list[str]:
    return [line for line in said if "error" in line]


def test_a_server_that_does_everything_wrong_is_lived_with(called: Any) -> None:
    often = ("html", "no number", "half an answer", "a gateway's error", "an error under status 200")
    trouble = {at: often[at % len(often)] for at in range(100, 1000, 17)}
    with served(factory("textcraft", TEXTCRAFT), trouble | {90: "silence", 201: "a flood", 540: "death"}) as url:
        run = called(f"url: '{url}'")
        said = run.run()
    assert errors(said) == []
    rows = [row for row in run.rows() if "rollout/episodes" in row]
    assert [row["rollout/episodes"] + row["rollout/faults"] for row in rows] == [16] * 4
    kinds = sum(summed(run, f"rollout/fault_{kind}") for kind in ("garbage", "lost", "deadline", "unreachable"))
    assert kinds == summed(run, "rollout/retries") + summed(run, "rollout/faults") > 0


def child_of(pid: int) -> int:
    """The environment's server."""
    for _ in range(100):  # it may just be started again
        found = subprocess.run(
            ["pgrep", "-P", str(pid), "-f", "agym.envs.serving.serve"], capture_output=True, text=True
        )
        if found.stdout:
            return int(found.stdout.split()[0])
        time.sleep(0.1)
    raise AssertionError("the run has no server")


def test_a_server_of_the_run_is_killed_and_stopped_and_the_run_goes_on(called: Any) -> None:
    run = called(f"{INSIDE}, transport: http")
    process = run.start()
    for step in (51, 52):
        run.wait_for(step)
        os.kill(child_of(process.pid), signal.SIGKILL)
    said = run.ended(0)
    assert len([line for line in said if "server died: the server of 'textcraft' was killed by SIGKILL" in line]) == 2
    assert summed(run, "rollout/server_troubles") == 2
    assert summed(run, "rollout/faults") == 0
    assert subprocess.run(["pgrep", "-s", str(process.pid)], capture_output=True).returncode == 1


def test_a_server_that_stays_bad_ends_the_run_which_goes_on_at_another(called: Any) -> None:
    with served(factory("textcraft", TEXTCRAFT), dict.fromkeys(range(480, 5000), "html")) as url:
        run = called(f"url: '{url}'")
        said = run.run(code=3)
    (error,) = errors(said)
    assert re.search(
        r"agym run: error: (rollout|eval): \d+ of \d+ episodes were lost .* garbage: .*It works!.* and resume", error
    )
    with served(factory("textcraft", TEXTCRAFT), {}) as url:
        run.run("--resume", "--set", f"environments.textcraft.url={url}")
    assert [row["total_step"] for row in run.rows()] == [*range(1, 53), 52, 53, 54, 54]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "none", folder], capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path, leave: int) -> None:
    room = os.statvfs(disk)
    with (disk / "others").open("wb") as file:
        file.write(b"x" * (room.f_bavail * room.f_frsize - leave))


def test_a_disk_that_is_full_ends_the_run_which_goes_on_when_there_is_room(called: Any, small_disk: Path) -> None:
    run = called(folder=small_disk)
    run.start()
    run.wait_for(20)
    fill(small_disk, 2_000_000)  # enough for what the stage begins with, too little for a checkpoint
    said = run.ended(3)
    (error,) = errors(said)
    assert re.search(r"agym run: error: save: '.*/checkpoints/step-51': .*; free space.*, and resume$", error)
    (error,) = errors(run.run("--resume", code=3))
    assert "start: the run folder takes up to" in error
    (small_disk / "others").unlink()
    run.run("--resume")
    assert run.rows()[-1]["total_step"] == 54


def test_signals_save_or_end_now_and_a_second_run_is_kept_out(
    called: Any, engines: EngineServer, tmp_path: Path
) -> None:
    run = called()
    process = run.start()
    run.wait_for(3)
    os.kill(process.pid, signal.SIGSTOP)  # it is in no hurry to be done
    for words in ((), ("--resume",)):
        (error,) = errors(Called(tmp_path, engines).run(*words, code=3))
        assert "is in use by another run: wait for it, or rename this one" in error
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGCONT)
    said = run.ended(130)
    assert [line for line in said if "finishing this step, then saving; interrupt again to stop now" in line]
    last = run.rows()[-1]["total_step"]
    assert (run.folder / f"runs/small/checkpoints/step-{last}").is_dir()

    process = run.start("--resume")
    run.wait_for(last + 1)
    # two of the same kind may be taken for one
    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        os.kill(process.pid, number)
    said = run.ended(130)
    assert said[-1] == "agym: interrupted"
    run.run("--resume")
    assert [row["total_step"] for row in run.rows()] == [*range(1, 53), 52, 53, 54, 54]


ENGINE = """
import os, pathlib
def register():
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.engine.exceptions import EngineDeadError
    step = EngineCore.step
    def mortal(core):
        if pathlib.Path(os.environ["GRAVE"]).exists():
            raise EngineDeadError()
        return step(core)
    EngineCore.step = mortal
"""


def test_an_engine_that_dies_ends_the_run_with_every_step_that_was_made(
    called: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "plugin"
    (plugin / "mortal-1.dist-info").mkdir(parents=True)
    (plugin / "mortal.py").write_text(ENGINE)
    (plugin / "mortal-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: mortal\nVersion: 1\n")
    (plugin / "mortal-1.dist-info/entry_points.txt").write_text("[vllm.general_plugins]\nmortal = mortal:register\n")
    monkeypatch.setenv("PYTHONPATH", str(plugin), prepend=os.pathsep)
    monkeypatch.setenv("GRAVE", str(tmp_path / "grave"))
    run = called()
    run.start_anew()
    run.wait_for(51)
    (tmp_path / "grave").touch()
    (error,) = errors(run.ended(3))
    assert re.search(r"agym run: error: sampler: the sampling engine failed: .*; resume to start it anew$", error)
    assert (run.folder / f"runs/small/checkpoints/step-{run.rows()[-1]['total_step']}").is_dir()
    (tmp_path / "grave").unlink()
    run.run("--resume")
    assert [row["total_step"] for row in run.rows()] == [*range(1, 53), 52, 53, 54, 54]


def test_a_learner_without_memory_names_what_to_change_and_goes_on_with_that_changed(called: Any) -> None:
    run = called()
    process = run.start("--set", "checkpoint.every=10")
    run.wait_for(15)
    status = Path(f"/proc/{process.pid}/status").read_text()
    bytes_now = 1024 * int(status.partition("VmSize:")[2].split()[0])
    resource.prlimit(process.pid, resource.RLIMIT_AS, (bytes_now, bytes_now))
    (error,) = errors(run.ended(3))
    assert "error: update: the learner is out of memory; resume with a smaller" in error
    smaller = "hardware.train.tokens_per_micro_batch=1024"
    assert "'hardware.train.tokens_per_micro_batch'" in error
    run.run("--resume", "--set", "checkpoint.every=10", "--set", smaller)
    assert [row["total_step"] for row in run.rows()] == [*range(1, 53), 52, 53, 54, 54]
