"""Python processes with the engines already imported: forked from one that holds them, which saves ten seconds each.

As a program it is that process: it imports, starts no thread and no engine, and forks for each request. A process made
this way has its own number, folder, output, signals and end, like one that was started; `python -m agym` itself is run
by the tests of starting. For tests `EngineServer` stands for it, one for each process of pytest.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NUMBER = 8
"""Bytes of a number that is sent: of a process, then of how it ended."""
IMPORTED = (
    "vllm",
    "vllm.v1.engine.core",
    "vllm.v1.engine.llm_engine",
    "vllm.v1.worker.cpu_worker",
    "vllm.model_executor.models.qwen3",
    "deepspeed",
    "peft",
    "tokenizers",
    "transformers.models.qwen3.modeling_qwen3",
    "agym.commands.run",
    "agym.runtime.run",
    "agym.runtime.backends.critic",
    "agym.runtime.backends.deepspeed",
    "agym.runtime.backends.vllm.sampler",
)


# --- for tests -----------------------------------------------------------------------------------------------------


class Process:
    """A forked process: the part of `subprocess.Popen` that tests need, with its output in files."""

    def __init__(self, args: tuple[str, ...], status: int, out: Path, err: Path) -> None:
        self.args, self.pid, self.returncode = args, _number(status), None
        self._status, self._out, self._err = status, out, err

    @property
    def output(self) -> str:
        """What it has written so far."""
        return self._out.read_text()

    def poll(self) -> int | None:
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = _number(self._status)
            os.close(self._status)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Output and errors, once it has ended."""
        if self.wait(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self._out.read_text(), self._err.read_text()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _number(file: int) -> int:
    data = os.read(file, NUMBER)
    if len(data) < NUMBER:
        raise RuntimeError("the process that forks is gone; its standard error says why")
    return int.from_bytes(data, "big", signed=True)


class EngineServer:
    """Starts processes, as `subprocess` does; the one that forks them is started with the first."""

    def __init__(self, folder: Path, variables: Mapping[str, str], imported: Sequence[str] = IMPORTED) -> None:
        self._folder, self._variables, self._imported = folder, variables, imported
        self._server: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._made: list[Process] = []

    def start(
        self, *args: str | Path, cwd: Path | None = None, errors_apart: bool = False, session: bool = False
    ) -> Process:
        """`start("-m", "agym", "run", "a.yaml")`: what `python` would do with these arguments."""
        name = f"process-{len(self._made)}"
        out, err = self._folder / f"{name}.out", self._folder / f"{name}.err"
        request = {"args": [str(each) for each in args], "cwd": str(cwd or Path.cwd()), "session": session}
        status, theirs = os.pipe()
        with out.open("ab") as out_file, err.open("ab") as err_file:
            files = [out_file.fileno(), (err_file if errors_apart else out_file).fileno(), theirs]
            socket.send_fds(self._connected(), [json.dumps(request).encode()], files)
        os.close(theirs)
        self._made.append(Process(tuple(request["args"]), status, out, err))
        return self._made[-1]

    def run(self, *args: str | Path, cwd: Path | None = None, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        process = self.start(*args, cwd=cwd, errors_apart=True)
        out, err = process.communicate(timeout)
        return subprocess.CompletedProcess(process.args, process.returncode or 0, out, err)

    def close(self) -> None:
        for each in self._made:
            each.kill()
        if self._link is not None and self._server is not None:
            self._link.close()
            self._server.wait()

    def _connected(self) -> socket.socket:
        if self._link is None:
            self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                command = [sys.executable, __file__, str(theirs.fileno()), *self._imported]
                environ = {**os.environ, **self._variables}
                self._server = subprocess.Popen(
                    command, env=environ, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
                )
        return self._link


# --- the process that forks ----------------------------------------------------------------------------------------


def serve(link: socket.socket) -> None:
    """Until the other side is gone. Returns in every process that is to run something."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, files, *_ = socket.recv_fds(link, 1 << 16, 3)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            link.close()
            return _run(json.loads(data), *files)
        for file in files:
            os.close(file)


def _run(request: Any, out: int, err: int, status: int) -> None:
    """In one process the request; in another the wait for its end, which only a parent learns of."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        os.close(out)
        os.close(err)
        os.write(status, child.to_bytes(NUMBER, "big", signed=True))
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(status, ended.to_bytes(NUMBER, "big", signed=True))
        os._exit(0)
    os.close(status)
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    for file, number in ((out, 1), (err, 2)):
        os.dup2(file, number)
    for file in {out, err}:
        os.close(file)
    try:
        as_python(request["args"])
    finally:
        gc.freeze()  # as `agym.cli.entry` does


def as_python(args: list[str]) -> None:
    if args[0] == "-m":
        sys.argv = args[1:]
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = args
        runpy.run_path(args[0], run_name="__main__")


if __name__ == "__main__":
    from contextlib import suppress
    from importlib import import_module

    sys.path[0] = ""
    gc.disable()
    for name in sys.argv[2:]:
        with suppress(ImportError):
            import_module(name)
    gc.enable()
    gc.freeze()
    if len(threads := os.listdir("/proc/self/task")) > 1 or threading.active_count() > 1:
        sys.exit(f"what was imported has started threads, which no fork survives: {len(threads)}")
    serve(socket.socket(fileno=int(sys.argv[1])))
