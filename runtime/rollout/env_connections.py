"""How an environment of a recipe is reached: in this process, on a server that we start, or at an address.

Enters: environment settings, a folder for logs, variables for secrets, how long to wait. Leaves: an EnvClient that owns
what it started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from ...dsl.model.recipe import Dialect, Environment, Rollout, Transport
from ...envs.clients.agentgym import AgentGymEnv
from ...envs.clients.client import HttpEnv, InlineEnv
from ...envs.clients.replicas import serve
from ...envs.clients.supervise import ServeCommand, ServerEvent
from ...envs.errors import EnvError
from ...envs.protocol import Deadlines, EnvClient, Runs
from ...envs.registry import factory
from ..errors import RunError

__all__ = ["Reach", "at_address", "deadlines_of"]

_SOONER = 0.95
"""A client gives up a little before whoever asked it: so it is told what was met, and not only how long it took."""
_LIMITS = ("--max-sessions", "1000000", "--lease", "86400")
"""Of a server of its own, which ends with it, the run itself limits the sessions, and closes what it opened: an episode
that waits for a long update is not to be lost."""


def deadlines_of(rollout: Rollout) -> Deadlines:
    return Deadlines(open_s=_SOONER * rollout.reset_timeout_s, step_s=_SOONER * rollout.step_timeout_s)


class Reach:
    """Opens environments for `Worlds`."""

    def __init__(
        self,
        logs: Path,
        environ: Mapping[str, str],
        note: Callable[[str], None],
        deadlines: Deadlines,
    ) -> None:
        self.logs = logs
        self.environ = environ
        self.deadlines = deadlines
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
            return at_address(settings, self.secret(settings.token), self.deadlines)
        assert settings.use is not None, "a verified plan names each environment"
        if settings.transport is not Transport.HTTP and settings.replicas == 1:
            inline = InlineEnv(factory(settings.use, settings.options), deadlines=self.deadlines)
            if settings.transport is Transport.INLINE or (await inline.spec()).runs is Runs.INLINE:
                return inline
            await inline.close()
        return await self._serve(name, settings)

    async def _serve(self, name: str, settings: Environment) -> EnvClient:
        assert settings.use is not None
        return await serve(
            ServeCommand(env=settings.use, options=settings.options, arguments=_LIMITS),
            settings.replicas,
            lambda number: self.logs / (f"{name}.log" if settings.replicas == 1 else f"{name}.{number}.log"),
            lambda event: self._tell(name, event),
            self.deadlines,
        )

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


# --- servers that run already ---


def at_address(settings: Environment, token: str | None, deadlines: Deadlines) -> EnvClient:
    return _SPEAKERS[settings.dialect](settings, token, deadlines)


def _native(settings: Environment, token: str | None, deadlines: Deadlines) -> EnvClient:
    assert settings.url is not None
    return HttpEnv(settings.url, token=token, deadlines=deadlines)


def _agentgym(settings: Environment, token: str | None, deadlines: Deadlines) -> EnvClient:
    assert settings.url is not None
    assert settings.kind is not None, "a verified plan says which kind"
    return AgentGymEnv(settings.url, settings.kind, token=token, deadlines=deadlines)


def _openenv(settings: Environment, token: str | None, deadlines: Deadlines) -> EnvClient:
    from ...envs.clients.openenv import OpenEnvEnv  # WebSockets are of no use to anything else

    assert settings.url is not None
    return OpenEnvEnv(settings.url, token=token, deadlines=deadlines)


_SPEAKERS: Mapping[Dialect, Callable[[Environment, str | None, Deadlines], EnvClient]] = {
    Dialect.NATIVE: _native,
    Dialect.AGENTGYM: _agentgym,
    Dialect.OPENENV: _openenv,
}
