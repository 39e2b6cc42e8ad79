"""Processes that are forked for tests: each has a number, an end and output of its own, as one that was started."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .engine_server import EngineServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    made = EngineServer(tmp_path_factory.mktemp("server"), {}, imported=("json",))
    yield made
    made.close()


def test_it_runs_what_python_would(server: EngineServer, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import os, sys; print(os.getcwd(), sys.argv); print('bad', file=sys.stderr); sys.exit(7)"
    )
    done = server.run(tmp_path / "a.py", "word", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (7, "bad\n")
    assert done.stdout == f"{tmp_path} {[str(tmp_path / 'a.py'), 'word']}\n"
    assert server.run("-m", "agym", "--version").stdout.startswith("agym ")


def test_a_fault_is_a_traceback_and_an_exit_code(server: EngineServer, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1 / 0")
    done = server.run(tmp_path / "a.py")
    assert done.returncode == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_one_that_is_killed_says_by_what_and_others_go_on(server: EngineServer, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import time; time.sleep(600)")
    one, other = (server.start(tmp_path / "a.py", session=session) for session in (False, True))
    assert (one.poll(), other.poll()) == (None, None)
    assert one.pid != other.pid
    with pytest.raises(subprocess.TimeoutExpired):
        one.communicate(timeout=0.01)
    one.kill()
    assert one.wait() == -signal.SIGKILL
    assert other.poll() is None
    while os.getpgid(other.pid) != other.pid:
        time.sleep(0.01)  # it is on its way to a session of its own
    os.killpg(other.pid, signal.SIGTERM)
    assert other.wait() == -signal.SIGTERM


def test_a_server_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    lost = EngineServer(tmp_path, {"PYTHONHOME": str(tmp_path)})
    with pytest.raises(RuntimeError, match="gone"):
        lost.start("-m", "agym")
    lost.close()
