"""A process per episode: started below a guard, with a scratch folder, limits and a deadline, and gone afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ...dsl.model.recipe import HarnessLimits
from . import guard

__all__ = ["ProcessEnd", "run_process"]

_GUARD_ENDS_S = 30.0
_LOOKS_AGAIN_S = 0.05
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "SYSTEMROOT", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
_TROUBLES = {
    "stdout": "its result exceeds 'limits.output_kb' ({output_kb} KiB)",
    "stderr": "its log exceeds 'limits.output_kb' ({output_kb} KiB)",
    "processes": "it has more processes than 'limits.processes' ({processes})",
    "memory": "it takes more memory than 'limits.memory_mb' ({memory_mb} MiB)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """How a process ended, and what it has written."""

    result: bytes
    log: str
    """Its standard error, the middle left out where it is long."""
    trouble: str
    """Why it counts as a fault; empty where it does not."""
    expired: bool = False
    """Whether it ran into its deadline."""


async def run_process(
    command: Sequence[str],
    task: bytes,
    *,
    environ: Mapping[str, str],
    variables: Mapping[str, str],
    limits: HarnessLimits,
    timeout_s: float,
    log_bytes: int,
    started: Callable[[int], None] = lambda pid: None,
) -> ProcessEnd:
    """Run a command with a task on its standard input, and in the file that AGYM_TASK names."""
    with TemporaryDirectory(prefix="agym.h.", ignore_cleanup_errors=True) as kept:
        scratch = Path(kept, "scratch")
        scratch.mkdir()
        files = {name: Path(kept, name) for name in ("task.json", "stdout", "stderr")}
        for name, file in files.items():
            file.write_bytes(task if name == "task.json" else b"")
        variables = {
            **{name: environ[name] for name in _PASSED_ON if name in environ},
            "TMPDIR": str(scratch),
            "AGYM_TASK": str(files["task.json"]),
            **variables,
        }
        spec = {
            "command": [_resolve(word) for word in command],
            "folder": str(scratch),
            "stdin": str(files["task.json"]),
            "stdout": str(files["stdout"]),
            "stderr": str(files["stderr"]),
            "memory_mb": limits.memory_mb,
            "processes": limits.processes,
            "output_kb": limits.output_kb,
            "file_mb": limits.file_mb,
        }
        end = await _run_guard(spec, variables, timeout_s, started)
        return ProcessEnd(
            result=_read_start(files["stdout"], limits.output_kb * 1024),
            log=_read_ends(files["stderr"], log_bytes),
            trouble=_explain(end, limits, timeout_s),
            expired=end is None,
        )


def _resolve(word: str) -> str:
    """The interpreter of this run, for `python` alone; makes relative paths absolute, as the command runs elsewhere."""
    return sys.executable if word == "python" else os.path.abspath(word) if word.startswith(("./", "../")) else word


async def _run_guard(
    spec: Mapping[str, object], variables: Mapping[str, str], timeout_s: float, started: Callable[[int], None]
) -> Mapping[str, object] | None:
    """Return what the guard says, None where the deadline passed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        guard.__file__,
        json.dumps(spec),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(variables),
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    started(process.pid)
    expired = False
    try:
        try:
            said = await asyncio.wait_for(process.stdout.read(), timeout_s)
        except TimeoutError:
            expired = True
            process.stdin.close()
            said = await asyncio.wait_for(process.stdout.read(), _GUARD_ENDS_S)
    finally:
        process.stdin.close()
        await _end_guard(process, variables)
    if expired:
        return None
    try:
        loaded: Mapping[str, object] = json.loads(said)
    except ValueError:
        return {"code": None, "trouble": "its guard was killed"}
    return loaded


async def _end_guard(process: asyncio.subprocess.Process, variables: Mapping[str, str]) -> None:
    """Wait for the guard, which ends all below it; where it was killed itself, end them by their key."""
    try:
        await asyncio.wait_for(process.wait(), _GUARD_ENDS_S)
    except TimeoutError:
        for pid in (*guard.descendants(process.pid), process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await process.wait()
    if process.returncode:
        await _end_by_mark(f"AGYM_TASK={variables['AGYM_TASK']}".encode())


async def _end_by_mark(mark: bytes) -> None:
    """End all processes that have a variable, until there is none: one may start another meanwhile."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_GUARD_ENDS_S):
            while found := _find_by_mark(mark):
                for pid in found:
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(_LOOKS_AGAIN_S)


def _find_by_mark(mark: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found


def _explain(end: Mapping[str, object] | None, limits: HarnessLimits, timeout_s: float) -> str:
    if end is None:
        return f"it did not end within 'timeout_s' ({timeout_s:g} s)"
    if trouble := str(end["trouble"]):
        known = _TROUBLES.get(trouble, trouble)
        return known.format(output_kb=limits.output_kb, processes=limits.processes, memory_mb=limits.memory_mb)
    code = end["code"]
    if code == 0:
        return ""
    if isinstance(code, int) and code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"


def _read_start(file: Path, most: int) -> bytes:
    with file.open("rb") as opened:
        return opened.read(most)


def _read_ends(file: Path, most: int) -> str:
    size = file.stat().st_size
    with file.open("rb") as opened:
        if size <= most:
            return opened.read().decode("utf-8", "replace")
        head = opened.read(most // 2)
        opened.seek(size - most // 2)
        tail = opened.read(most // 2)
    return f"{head.decode('utf-8', 'replace')}\n[{size - most} bytes are left out]\n{tail.decode('utf-8', 'replace')}"
