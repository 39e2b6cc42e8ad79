"""The driver as a job of a Ray cluster that already runs: submitted to its dashboard, and followed until it ends."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from .job import Job, JobError, run_or_resume

__all__ = ["DASHBOARD_PORT", "Submitted", "dashboard_of", "driver_command", "follow", "submit_line"]

DASHBOARD_PORT = 8265
_CLIENT_PORT = 10001
_CONNECT_S = 10.0
_AGENT_S = 60.0
"""For the agents of a cluster that was just started, without which its dashboard accepts no job."""
_VARIABLES = {"RAY_JOB_STOP_WAIT_TIME_S": "600"}
"""Ray kills a driver that is asked to stop after this time, by default 3 s: too short for a step and a save."""


def dashboard_of(address: str) -> str:
    """`ray://HOST[:PORT]` as the URL of the dashboard, which takes jobs."""
    parts = urlsplit(address)
    try:
        port = DASHBOARD_PORT if parts.port is None else parts.port
    except ValueError:
        port = 0
    if parts.scheme != "ray" or not parts.hostname or not port or parts.path or parts.username:
        raise JobError(f"'{address}' is not of the form ray://HOST:PORT, the port being the dashboard's, mostly 8265")
    if port == _CLIENT_PORT:
        raise JobError(f"{port} is the port of Ray's client; jobs go to the dashboard's, mostly {DASHBOARD_PORT}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"http://{host}:{port}"


def driver_command(job: Job) -> str:
    """One line for the shell that Ray starts."""
    script = f'{run_or_resume(job)}\nexec python3 -m agym "$@"'
    return f"bash -c {shlex.quote(script)}"


def submit_line(dashboard: str, command: str) -> str:
    """The command that does the same by hand."""
    given = shlex.quote(json.dumps({"env_vars": _VARIABLES}))
    return f"ray job submit --address={shlex.quote(dashboard)} --working-dir=. --runtime-env-json={given} -- {command}"


class Submitted:
    """A job of a cluster."""

    def __init__(self, dashboard: str, job: Job, excludes: Sequence[str]) -> None:
        """Submit it, with the folder that agym is called in as its working folder."""
        parts = urlsplit(dashboard)
        try:
            # the client itself would wait without end
            socket.create_connection((parts.hostname or "", parts.port or 0), timeout=_CONNECT_S).close()
            from ray.job_submission import JobSubmissionClient
        except ImportError as error:
            raise JobError("'--on ray://' needs Ray here too: pip install 'agym-dsl[ray]'") from error
        except OSError as error:
            raise JobError(f"no dashboard answers at {dashboard}: {(error.strerror or 'no answer').lower()}") from error
        try:
            self._client: Any = JobSubmissionClient(dashboard)
            self.id = self._submit(job, excludes)
        except (RuntimeError, ValueError, ConnectionError) as error:
            raise JobError(f"{dashboard} took no job: {' '.join(str(error).split())[:300]}") from error

    def _submit(self, job: Job, excludes: Sequence[str]) -> str:
        last = time.monotonic() + _AGENT_S
        while True:
            try:
                return str(
                    self._client.submit_job(
                        entrypoint=driver_command(job),
                        runtime_env={"working_dir": job.folder, "excludes": list(excludes), "env_vars": _VARIABLES},
                        metadata={"agym": job.name},
                    )
                )
            except RuntimeError as error:
                if "No available agent" not in str(error) or time.monotonic() > last:
                    raise
                time.sleep(1)

    async def lines(self, write: Callable[[str], object]) -> None:
        async for text in self._client.tail_job_logs(self.id):
            write(text)

    def status(self) -> tuple[str, str]:
        """`SUCCEEDED`, `FAILED` or `STOPPED`, and what there is to say about it."""
        found = self._client.get_job_info(self.id)
        return str(getattr(found.status, "value", found.status)), found.message or ""


def follow(job: Submitted, write: Callable[[str], object]) -> tuple[str, str]:
    """Write a job's lines until it ends; return its status. KeyboardInterrupt leaves it running."""
    asyncio.run(job.lines(write))
    return job.status()
