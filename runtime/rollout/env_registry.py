"""From what a recipe says of an environment to one that can be played.

Enters: environment settings, and how to reach each kind. Leaves: Worlds, opened when they are first asked for, shared
by all stages that want the same one, closed together.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

from ...dsl.model.recipe import Environment
from ...envs.errors import EnvError
from ...envs.protocol import EnvClient, EnvSpec
from ..errors import StepRefused
from .env_calls import World

__all__ = ["Open", "Worlds", "before_any_episode"]

Open = Callable[[str, Environment], Awaitable[EnvClient]]
"""Reaches an environment: in this process, on a server of ours, or at an address."""


class Worlds:
    """The environments of a run."""

    def __init__(self, open_client: Open) -> None:
        self._open = open_client
        self._clients: dict[str, EnvClient] = {}
        self._specs: dict[str, EnvSpec] = {}

    async def get(self, name: str, settings: Environment) -> World:
        key = _identity(settings)
        with before_any_episode(f"'{name}' at {settings.url}" if settings.url else f"'{name}'"):
            if key not in self._clients:
                self._clients[key] = await self._open(name, settings)
            client = self._clients[key]
            spec = await client.spec()
        if spec != self._specs.setdefault(key, spec):
            known = self._specs[key]
            raise StepRefused(
                f"environment '{name}': its server was {known.name} {known.version} and answers as another now, "
                f"{spec.name} {spec.version}; bring the first one back and resume"
            )
        return World(name=name, client=client, spec=spec, success_at=settings.success_at)

    async def all(self, settings: Mapping[str, Environment]) -> dict[str, World]:
        return {name: await self.get(name, each) for name, each in settings.items()}

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()


@contextmanager
def before_any_episode(name: str) -> Iterator[None]:
    """What an environment says then is for the operator to hear."""
    try:
        yield
    except EnvError as error:
        raise StepRefused(f"environment {name}: {error}") from error


def _identity(settings: Environment) -> str:
    """Equal for settings that lead to the same environment, whatever tasks and weights they go with."""
    where = (settings.use, settings.url, settings.dialect, settings.kind, settings.token)
    how = (settings.replicas, settings.transport, dict(settings.options))
    return json.dumps([*where, *how], sort_keys=True, default=list)
