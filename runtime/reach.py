"""How an environment of a recipe is reached: in this process, on a server that we start, or at an address.

Enters: environment settings, a folder for logs, variables for secrets, how long to wait. Leaves: an EnvClient that owns
what it started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..dsl.recipe import Dialect, Environment, Rollout, Transport
from ..envs.client import HttpEnv, InlineEnv
from ..envs.errors import EnvError, EnvFault
from ..envs.protocol import Deadlines, EnvClient, EnvSpec, Reached, Runs, Session, TaskInfo
from ..envs.registry import factory
from ..envs.supervise import ServeCommand, ServerEvent, ServerProcess
from .errors import RunError

__all__ = ["Reach", "deadlines_of"]

_SOONER = 0.95
"""A client gives up a little before whoever asked it: so it is told what was met, and not only how long it took."""
_SESSIONS = 1_000_000
"""The run itself limits how many are under way on a server of its own."""


def deadlines_of(rollout: Rollout) -> Deadlines:
    return Deadlines(open_s=_SOONER * rollout.reset_timeout_s, step_s=_SOONER * rollout.step_timeout_s)


class Reach:
    """Opens environments for `Worlds`."""

    def __init__(
        self,
        logs: Path,
        environ: Mapping[str, str],
        note: Callable[[str], None],
        deadlines: Deadlines | None = None,
    ) -> None:
        self.logs = logs
        self.environ = environ
        self.deadlines = deadlines or Deadlines()
        self._note = note
        self.num_troubles = 0
        """Times that a server of ours died, hung or made no sense, or could not be started again."""

    async def __call__(self, name: str, settings: Environment) -> EnvClient:
        try:
            return await self._open(name, settings)
        except EnvError as error:
            raise RunError(f"environment '{name}': {error}") from error

    async def _open(self, name: str, settings: Environment) -> EnvClient:
        if settings.url is not None:
            if settings.dialect is not Dialect.NATIVE:
                raise RunError(
                    f"environment '{name}': this version cannot play on a server of dialect '{settings.dialect}'"
                )
            return HttpEnv(settings.url, token=self.secret(settings.token), deadlines=self.deadlines)
        assert settings.use is not None, "a verified plan names each environment"
        if settings.transport is not Transport.HTTP:
            inline = InlineEnv(factory(settings.use, settings.options), deadlines=self.deadlines)
            if settings.transport is Transport.INLINE or (await inline.spec()).runs is Runs.INLINE:
                return inline
            await inline.close()
        return await self._serve(name, settings)

    async def _serve(self, name: str, settings: Environment) -> EnvClient:
        assert settings.use is not None
        server = ServerProcess(
            ServeCommand(env=settings.use, options=settings.options, arguments=("--max-sessions", str(_SESSIONS))),
            log=self.logs / f"{name}.log",
            report=lambda event: self._tell(name, event),
        )
        await server.__aenter__()
        return _Served(server, HttpEnv(server.url, deadlines=self.deadlines))

    def _tell(self, name: str, event: ServerEvent) -> None:
        self.note(f"environment '{name}': its server {event.trouble.value.replace('_', ' ')}: {event.message}")

    def note(self, trouble: str) -> None:
        self.num_troubles += 1
        self._note(trouble)

    def secret(self, reference: str | None) -> str | None:
        """A token as the environment has it; a plan holds only its name."""
        if reference is None:
            return None
        found = re.fullmatch(r"\$\{env:(\w+)[^}]*\}", reference)
        if found is None or not self.environ.get(found[1]):
            raise RunError(f"the token {reference} is not set: set the environment variable that it names")
        return self.environ[found[1]]


class _Served:
    """An environment on a server of our own, which ends with it."""

    def __init__(self, server: ServerProcess, client: HttpEnv) -> None:
        self._server = server
        self._client = client

    async def spec(self) -> EnvSpec:
        return await self._there.spec()

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]:
        return await self._there.tasks(split)

    async def open(self, task: str, seed: int) -> Session:
        return await self._there.open(task, seed)

    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        return await self._there.expert(task, seed)

    async def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None:
        return await self._there.hindsight(task, seed, actions)

    async def corpus(self) -> tuple[str, ...]:
        return await self._there.corpus()

    @property
    def _there(self) -> HttpEnv:
        # the address of a server that was given up is anybody's
        if self._server.given_up is not None:
            raise EnvFault(self._server.given_up)
        return self._client

    async def close(self) -> None:
        await self._client.close()
        await self._server.__aexit__(None, None, None)
