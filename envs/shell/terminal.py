"""A terminal in a jail of its own, seen from outside: start it, put files in, run commands, take files out.

The jail is a process of a bare interpreter (`jail/`), spoken to through its standard input and output.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import EnvFault, FaultKind
from .jail.frames import read_frame, write_frame
from .tasks import WORK

__all__ = ["ENVIRON", "TESTS", "Limits", "Result", "Terminal", "explain_unavailable"]

TESTS = "/tests"
"""The folder for what grades."""

_START_S = 120.0
"""To start an interpreter, on a machine that is busy."""
_GRACE_S = 60.0
"""To answer, beyond what a command may take."""
_CLOSE_S = 2.0
_MEBI = 1 << 20
_PROGRAM = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); from jail import launch; launch.main()"
_SYSTEM = ("/usr", "/etc/alternatives", "/etc/ld.so.cache")
_ROOT_FOLDERS = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
"""Folders of programs: links into /usr, or folders of their own on older systems."""
_PYTHON = "opt/python"
"""Where the interpreter is that runs this, should the system have none."""
_FILES = {
    "etc/group": "agent:x:1000:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/gitconfig": "[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n[core]\n\tpager = cat\n",
}
_DATE = "2031-05-18T12:00:00+0000"
ENVIRON = {
    "PATH": f"/usr/bin:/bin:/usr/local/bin:/{_PYTHON}/bin",
    "HOME": WORK,
    "USER": "agent",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "dumb",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "GIT_AUTHOR_NAME": "Agent",
    "GIT_AUTHOR_EMAIL": "agent@example.org",
    "GIT_AUTHOR_DATE": _DATE,
    "GIT_COMMITTER_NAME": "Agent",
    "GIT_COMMITTER_EMAIL": "agent@example.org",
    "GIT_COMMITTER_DATE": _DATE,
    "GIT_EDITOR": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    command_s: float = 10.0
    """Time of one command."""
    memory_bytes: int = 512 * _MEBI
    """Memory of all processes together, checked while a command runs; and of each one's addresses, twice that."""
    processes: int = 64
    open_files: int = 128
    file_bytes: int = 16 * _MEBI
    disk_bytes: int = 64 * _MEBI
    """All files together, temporary ones included."""
    files: int = 8192
    output_bytes: int = 4_000
    """Output of a command that is kept: its beginning and its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a command."""

    output: bytes
    """Its beginning and its end, where something between them is left out."""
    code: int
    ended: str
    """`exit`, or the limit that ended it: `time`, `memory` or `output`."""
    head: int
    """Bytes of the output that come before what is left out."""
    left_out: int
    cpu_s: float
    """Processor time of all commands so far."""


class Terminal:
    """A jail and its process; `EnvFault` where it cannot be started, or ends by itself."""

    def __init__(
        self, limits: Limits, work: str = WORK, shown: Mapping[str, str] | None = None, writable: Sequence[str] = ()
    ) -> None:
        """A command begins in the folder `work`. `shown` are further folders, read-only, by where they are seen;
        `writable` are empty ones."""
        self._limits = limits
        self._work = work
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
        try:
            answer, _ = self._ask(_configure(limits, (work, "/tmp", *writable), shown or {}), b"", _START_S)
            if "error" in answer:
                raise EnvFault(
                    f"no terminal can be started here: {answer['error']}; envs/shell/README.md says what it takes"
                )
        except BaseException:
            self.close()
            raise

    def run(self, command: str, *, fresh: bool = False) -> Result:
        """Run a command; one that is `fresh` neither sees nor leaves a folder or variables."""
        limits = {"timeout_s": self._limits.command_s, "output_bytes": self._limits.output_bytes}
        data = command.encode("utf-8", "surrogateescape")
        answer, output = self._ask({"op": "run", "fresh": fresh, **limits}, data, self._limits.command_s + _GRACE_S)
        if "error" in answer:
            raise EnvFault(f"the terminal has ended: {answer['error']}")
        facts = {name: answer[name] for name in ("code", "ended", "head", "left_out", "cpu_s")}
        return Result(output=output, **facts)

    def put(self, packed: bytes, folder: str = "") -> str:
        """Write files, packed as in `jail.trees`, into a folder, the work folder if none is named; return what went
        wrong, if anything."""
        answer, _ = self._ask({"op": "put", "folder": folder or self._work}, packed, _GRACE_S)
        return str(answer.get("error", ""))

    def get(self) -> Sequence[Mapping[str, Any]] | None:
        """End all processes and take out the work folder; None where it is too large to be examined."""
        answer, packed = self._ask({"op": "get", "folder": self._work, "bytes": self._limits.disk_bytes}, b"", _GRACE_S)
        return None if "error" in answer else json.loads(packed)

    def close(self) -> None:
        """End the jail and all in it; may be called more than once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        # at the end of its input it ends by itself, and leaves no process that a parent would have to collect
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_S)
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, head: Mapping[str, Any], body: bytes, timeout_s: float) -> tuple[dict[str, Any], bytes]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        answers = self._process.stdout.fileno()
        try:
            write_frame(self._process.stdin.fileno(), head, body)
            message = read_frame(answers, _deadline(answers, timeout_s))
        except BrokenPipeError:
            message = None
        if message is None:
            raise EnvFault("the terminal has ended by itself")
        return message


def _deadline(fd: int, timeout_s: float) -> Callable[[], None]:
    """A function that waits until something can be read; a fault once all the time is used up."""
    until, poll = time.monotonic() + timeout_s, select.poll()
    poll.register(fd, select.POLLIN)

    def wait() -> None:
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            raise EnvFault("the terminal does not answer", kind=FaultKind.DEADLINE)

    return wait


def _configure(limits: Limits, writable: Sequence[str], shown: Mapping[str, str]) -> dict[str, Any]:
    work = writable[0]
    passwd = f"agent:x:1000:1000:agent:{work}:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n"
    binds = {path: path.lstrip("/") for path in _SYSTEM if os.path.exists(path)}
    binds |= {path: inside.lstrip("/") for inside, path in shown.items()}
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        binds[sys.base_prefix] = _PYTHON
    links = {}
    for name in _ROOT_FOLDERS:
        if os.path.islink(f"/{name}"):
            links[name] = os.readlink(f"/{name}")
        elif os.path.isdir(f"/{name}"):
            binds[f"/{name}"] = name
    return {
        "binds": binds,
        "links": links,
        "files": {"etc/passwd": passwd, **_FILES},
        "work": work,
        "scratch": [each.lstrip("/") for each in writable],
        "scratch_bytes": limits.disk_bytes,
        "scratch_files": limits.files,
        "memory_bytes": limits.memory_bytes,
        "environ": {**ENVIRON, "HOME": work},
        "limits": {
            "RLIMIT_AS": 2 * limits.memory_bytes,
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": int(limits.command_s) + 1,
            "RLIMIT_FSIZE": limits.file_bytes,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_NOFILE": limits.open_files,
            "RLIMIT_NPROC": limits.processes,
        },
    }


@cache  # a machine does not change
def explain_unavailable() -> str | None:
    """The reason why no terminal can be started here, if any."""
    try:
        terminal = Terminal(Limits())
    except (OSError, EnvFault) as error:
        return str(error)
    try:
        result = terminal.run("python3 -c '' && git --version && awk '' && sed ''", fresh=True)
    except EnvFault as error:
        return str(error)
    finally:
        terminal.close()
    return f"a terminal lacks a program: {result.output.decode('utf-8', 'replace').strip()}" if result.code else None
