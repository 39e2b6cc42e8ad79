"""Environment servers as child processes: started, watched, restarted, and gone when their keeper is gone.

The keeper opens the listening socket and hands it down, so the port cannot be lost to another process, and a restarted
server answers at the same address. Each server leads a process group of its own, and holds a leash: when the keeper
dies, by whatever signal, the group dies too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from ..errors import EnvError, EnvFault, FaultKind
from ..listener import listen, url_of
from ..protocol import Deadlines, Json
from ..wire import dump
from .client import HttpEnv

__all__ = ["ServeCommand", "ServerEvent", "ServerProcess", "ServerTrouble", "Watch"]

_LOOKS, _LOOK_S = 300, 0.02
"""How often, and how far apart, to check whether a group that should end has ended."""

_QUOTED = 400
"""Letters of a server's last line that an error quotes: two long paths and what is wrong."""


class ServerTrouble(StrEnum):
    """Kinds of trouble with a server."""

    DIED = "died"
    HANGS = "hangs"
    GARBAGE = "garbage"
    FAILED_TO_START = "failed_to_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    trouble: ServerTrouble
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeCommand:
    """An environment to serve, and the server's arguments."""

    env: str
    options: Mapping[str, Json] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    """Added to the process's own."""
    program: Sequence[str] = (sys.executable, "-m", "agym.envs.serving.serve")

    def argv(self, fd: int) -> list[str]:
        options = dump(self.options).decode("ascii")
        return [*self.program, self.env, "--options", options, "--fd", str(fd), "--leash", *self.arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How closely a server is watched."""

    start_s: float = 60.0
    """Longest wait until it first answers."""
    every_s: float = 5.0
    probe_s: float = 10.0
    """Longest wait for an answer about its health."""
    misses: int = 3
    """Probes in a row that may fail before it is restarted."""
    max_restarts: int = 5
    """Without `sound_s` of health in between; then the server is given up."""
    sound_s: float = 600.0
    stop_s: float = 15.0
    """For a graceful stop, before it is killed."""


class ServerProcess:
    """One environment's server: `async with ServerProcess(...) as server: HttpEnv(server.url)`."""

    def __init__(
        self,
        command: ServeCommand,
        *,
        log: Path,
        watch: Watch | None = None,
        report: Callable[[ServerEvent], None] | None = None,
    ) -> None:
        self._command = command
        self._log = log
        self._watch = watch or Watch()
        self._report = report or _ignore
        self._listener: socket.socket | None = None
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._log_start = 0
        """Where in the log this life of the server begins."""
        self._tries = 0
        """To start it again, since it was last sound for a while."""
        self.url = ""
        self.num_restarts = 0
        self.given_up: str | None = None
        """Why nobody will answer any more."""
        self.events: list[ServerEvent] = []

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def __aenter__(self) -> ServerProcess:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._listener = listen("127.0.0.1", 0)
        self.url = url_of(self._listener)
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        self._keeper = asyncio.create_task(self._keep(), name=f"watch {self._command.env}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        await self._stop()

    # --- one life of the server ---

    async def _start(self) -> None:
        """Start and wait for the first healthy answer; an `EnvFault` says why there was none."""
        assert self._listener is not None
        fd = self._listener.fileno()
        try:
            with self._log.open("ab") as log:
                self._log_start = log.tell()
                self._process = await asyncio.create_subprocess_exec(
                    *self._command.argv(fd),
                    stdin=PIPE,  # the leash: closed by the system when this process ends, however it ends
                    stdout=DEVNULL,
                    stderr=log,
                    pass_fds=(fd,),
                    start_new_session=True,
                    env={**os.environ, **self._command.environ},
                )
        except OSError as error:
            raise EnvFault(f"{self._name} could not be started: {error}") from error
        await self._first_answer(self._process)

    async def _first_answer(self, process: Process) -> None:
        probing = asyncio.create_task(self._probe(self._watch.start_s))
        ending = asyncio.create_task(process.wait())
        try:
            await asyncio.wait({probing, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not probing.done():
                raise EnvFault(f"it {self._how_it_ended(process)}")
            probing.result()
        except EnvFault as fault:
            await self._kill()
            raise EnvFault(f"{self._name} did not start: {fault}; its log: {self._log}", kind=fault.kind) from fault
        finally:
            for task in (probing, ending):
                task.cancel()
            await asyncio.gather(probing, ending, return_exceptions=True)

    async def _probe(self, deadline_s: float) -> None:
        """Ask for a sign of health; an `EnvFault` says what was wrong with the answer."""
        client = HttpEnv(self.url, deadlines=Deadlines(close_s=deadline_s))
        try:
            health = await client.health()
        except EnvFault:
            raise
        except EnvError as error:
            raise EnvFault(f"/health answered: {error}", kind=FaultKind.GARBAGE) from error
        finally:
            await client.close()
        if health.get("env") is None:
            raise EnvFault("/health did not answer as an environment server does", kind=FaultKind.GARBAGE)
        if health.get("status") != "ok":
            raise EnvFault(f"every thread of {self._name} hangs in a call", kind=FaultKind.DEADLINE)

    # --- watching ---

    async def _keep(self) -> None:
        try:
            while self.given_up is None:
                await self._next_life()
        except Exception as error:
            self._give_up(f"{self._name} is watched no more: {type(error).__name__}: {error}")

    async def _next_life(self) -> None:
        """Wait for trouble, then restart the server or give it up."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        trouble = await self._next_trouble()
        if loop.time() - started >= self._watch.sound_s:
            self._tries = 0
        self._tell(trouble)
        await self._kill()
        await self._restart(trouble)

    async def _next_trouble(self) -> ServerEvent:
        """Wait until something is wrong."""
        process, misses = self._process, 0
        assert process is not None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._watch.every_s):
                    await process.wait()
                return ServerEvent(trouble=ServerTrouble.DIED, message=f"{self._name} {self._how_it_ended(process)}")
            try:
                await self._probe(self._watch.probe_s)
                misses = 0
            except EnvFault as fault:
                misses += 1
                if misses >= self._watch.misses:
                    trouble = _TROUBLES.get(fault.kind, ServerTrouble.HANGS)
                    return ServerEvent(trouble=trouble, message=f"{self._name}: {fault}")

    async def _restart(self, trouble: ServerEvent) -> None:
        while self._tries < self._watch.max_restarts:
            self._tries += 1
            self.num_restarts += 1
            try:
                await self._start()
            except EnvFault as fault:
                trouble = ServerEvent(trouble=ServerTrouble.FAILED_TO_START, message=str(fault))
                self._tell(trouble)
            else:
                return
        self._give_up(f"{self._name} is given up after {self._tries} restarts: {trouble.message}; its log: {self._log}")

    def _give_up(self, why: str) -> None:
        self.given_up = why
        # nobody will answer any more: refuse connections rather than let them wait
        if self._listener is not None:
            self._listener.close()

    def _tell(self, event: ServerEvent) -> None:
        self.events.append(event)
        self._report(event)

    # --- ending ---

    async def _stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._watch.stop_s):
                    await self._process.wait()
        await self._kill()

    async def _kill(self) -> None:
        """Release the leash, which ends the server and all that it has started; kill the group if it does not."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with suppress(ProcessLookupError):
            for _ in range(_LOOKS):
                os.killpg(process.pid, 0)
                await asyncio.sleep(_LOOK_S)
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    @property
    def _name(self) -> str:
        return f"the server of '{self._command.env}'"

    def _how_it_ended(self, process: Process) -> str:
        code = process.returncode
        if code is not None and code < 0:
            return f"was killed by {_SIGNALS.get(-code, f'signal {-code}')}"
        return f"ended with exit code {code}{_last_words(self._log, self._log_start)}"


_SIGNALS = {number.value: number.name for number in signal.Signals}
"""Those between the first and the last for real time have no names."""
_TROUBLES = {FaultKind.GARBAGE: ServerTrouble.GARBAGE, FaultKind.CRASHED: ServerTrouble.GARBAGE}


def _last_words(log: Path, start: int) -> str:
    lines = log.read_bytes()[start:].decode(errors="replace").strip().splitlines()
    return f", saying: {lines[-1][:_QUOTED]}" if lines else ""


def _ignore(event: ServerEvent) -> None:
    """Report nothing; `events` keeps them all."""
