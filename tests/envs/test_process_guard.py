"""Nothing is left of a server, whatever ends it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import alive, started

# What it starts ignores signals, has a session of its own, and has lost its parent.
WORK = """
import os, subprocess, sys, tempfile, time
from agym.envs.serving.process_guard import run_guarded
SLEEPER = (
    "import os, signal, sys, time\\n"
    "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\\n"
    "if os.fork(): os._exit(0)\\n"
    "os.setsid()\\n"
    "os.write(1, b'%d\\\\n' % os.getpid())\\n"
    "time.sleep(600)"
)
def work():
    tempfile.mkdtemp()
    subprocess.run([sys.executable, "-c", SLEEPER], check=True)
    os.write(1, b"working\\n")
    return int(input())
sys.exit(run_guarded(work, leashed=False))
"""
LEASHED = WORK.replace("leashed=False", "leashed=True").replace("int(input())", "time.sleep(600)")


def worker_of(pid: int) -> int:
    """The process that works, below its warden."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def wait_until_gone(folder: Path, *pids: int) -> None:
    for _ in range(300):
        if not any(map(alive, pids)) and not list(folder.iterdir()):
            return
        time.sleep(0.05)
    pytest.fail(f"{[pid for pid in pids if alive(pid)]} and {[*folder.iterdir()]} are left")


@contextmanager
def working(temporary: Path, program: str = WORK) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A warden, and an orphan below it."""
    with started(program, temporary) as warden:
        assert warden.stdout is not None
        orphan = int(min(warden.stdout.readline(), warden.stdout.readline()))  # digits come before letters
        assert alive(orphan)
        (folder,) = temporary.iterdir()
        assert len([*folder.glob("[!.]*")]) == 1
        yield warden, orphan


def test_nothing_is_left_of_work_that_ends_and_its_code_is_told(tmp_path: Path) -> None:
    with working(tmp_path) as (warden, orphan):
        warden.communicate("7\n", timeout=20)
        assert warden.returncode == 7
        assert not alive(orphan)
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_work_that_is_killed_and_by_what_is_told(number: signal.Signals, tmp_path: Path) -> None:
    with working(tmp_path) as (warden, orphan):
        os.kill(worker_of(warden.pid), number)
        assert warden.wait(20) == -number
        assert not alive(orphan)
        assert not list(tmp_path.iterdir())


def test_what_still_has_its_parent_is_ended_when_the_warden_is_killed(tmp_path: Path) -> None:
    program = WORK.replace("if os.fork(): os._exit(0)", "").replace("subprocess.run", "subprocess.Popen")
    with working(tmp_path, program.replace(", check=True", "")) as (warden, child):
        worker = worker_of(warden.pid)
        warden.kill()
        wait_until_gone(tmp_path, worker, child)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on(number: signal.Signals, tmp_path: Path) -> None:
    with working(tmp_path) as (warden, orphan):
        warden.send_signal(number)
        assert warden.wait(20) == -number
        assert not alive(orphan)
        assert not list(tmp_path.iterdir())


def test_work_on_a_leash_ends_with_whoever_holds_it(tmp_path: Path) -> None:
    with working(tmp_path, LEASHED) as (warden, orphan):
        worker = worker_of(warden.pid)
        assert warden.stdin is not None
        warden.stdin.close()
        assert warden.wait(20) == -signal.SIGKILL
        assert not alive(worker)
        assert not alive(orphan)
        assert not list(tmp_path.iterdir())


def test_a_folder_that_nobody_holds_any_more_is_removed_by_the_next_and_no_other(tmp_path: Path) -> None:
    for name in ("agym.held", "agym.abandoned", "other", "agym.of-a-user"):
        (tmp_path / name).mkdir()
        (tmp_path / name / (".agym-temporary" if name != "agym.of-a-user" else "file")).touch()
    held = os.open(tmp_path / "agym.held", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    imports = "import sys\nfrom agym.envs.serving.process_guard import run_guarded"
    program = f"{imports}\nsys.exit(run_guarded(lambda: 0, leashed=False))"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True)
    assert {file.name for file in tmp_path.iterdir()} == {"agym.held", "other", "agym.of-a-user"}
    os.close(held)
