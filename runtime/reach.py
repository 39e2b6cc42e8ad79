"""How an environment of a recipe is reached: in this process, on a server that we start, or at an address.

Enters: environment settings, a folder for logs, variables for secrets. Leaves: an EnvClient that owns what it started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from ..dsl.recipe import Dialect, Environment, Transport
from ..envs.client import HttpEnv, InlineEnv
from ..envs.errors import EnvError
from ..envs.protocol import EnvClient, EnvSpec, Runs, Session, TaskInfo
from ..envs.registry import factory
from ..envs.supervise import ServeCommand, ServerEvent, ServerProcess
from .errors import RunError

__all__ = ["Reach"]


class Reach:
    """Opens environments for `Worlds`."""

    def __init__(self, logs: Path, environ: Mapping[str, str], note: Callable[[str], None]) -> None:
        self._logs = logs
        self._environ = environ
        self._note = note

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
            return HttpEnv(settings.url, token=self._secret(settings.token))
        assert settings.use is not None, "a verified plan names each environment"
        if settings.transport is not Transport.HTTP:
            inline = InlineEnv(factory(settings.use, settings.options))
            if settings.transport is Transport.INLINE or (await inline.spec()).runs is Runs.INLINE:
                return inline
            await inline.close()
        return await self._serve(name, settings)

    async def _serve(self, name: str, settings: Environment) -> EnvClient:
        assert settings.use is not None
        server = ServerProcess(
            ServeCommand(env=settings.use, options=settings.options),
            log=self._logs / f"{name}.log",
            report=lambda event: self._tell(name, event),
        )
        await server.__aenter__()
        return _Served(server, HttpEnv(server.url))

    def _tell(self, name: str, event: ServerEvent) -> None:
        self._note(f"environment '{name}': its server {event.trouble.value.replace('_', ' ')}: {event.message}")

    def _secret(self, reference: str | None) -> str | None:
        """A token as the environment has it; a plan holds only its name."""
        if reference is None:
            return None
        found = re.fullmatch(r"\$\{env:(\w+)[^}]*\}", reference)
        if found is None or not self._environ.get(found[1]):
            raise RunError(f"the token {reference} is not set: set the environment variable that it names")
        return self._environ[found[1]]


class _Served:
    """An environment on a server of our own, which ends with it."""

    def __init__(self, server: ServerProcess, client: HttpEnv) -> None:
        self._server = server
        self._client = client

    async def spec(self) -> EnvSpec:
        return await self._client.spec()

    async def tasks(self, split: str) -> tuple[TaskInfo, ...]:
        return await self._client.tasks(split)

    async def open(self, task: str, seed: int) -> Session:
        return await self._client.open(task, seed)

    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        return await self._client.expert(task, seed)

    async def corpus(self) -> tuple[str, ...]:
        return await self._client.corpus()

    async def close(self) -> None:
        await self._client.close()
        await self._server.__aexit__(None, None, None)
