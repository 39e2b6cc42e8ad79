"""Connections to the environments of a recipe, and the registry of open ones."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ...dsl.model.recipe import Dialect, Environment, Rollout, Transport
from ...envs.clients.agentgym import AgentGymEnv
from ...envs.clients.client import HttpEnv, InlineEnv
from ...envs.clients.replicas import serve
from ...envs.clients.supervise import ServeCommand, ServerEvent
from ...envs.errors import EnvError
from ...envs.options import read_key
from ...envs.protocol import Deadlines, EnvClient, EnvSpec, Runs
from ...envs.registry import factory, is_folder
from ..errors import RunError, StepRefused
from .env_calls import ConnectedEnv, SessionLimit

__all__ = ["EnvConnector", "OpenClient", "OpenEnvs", "connect_to_server", "make_deadlines", "stop_on_env_error"]

_CLIENT_SHARE = 0.95
"""Share of the caller's timeout after which a client gives up: so the caller learns the cause, not only the delay."""
_SERVER_ARGUMENTS = ("--max-sessions", "1000000", "--lease", "86400")
"""Arguments of a run's own servers, which end with the run: the run limits and closes sessions itself, and an episode
that waits for a long update must not lose its own."""


def make_deadlines(rollout: Rollout) -> Deadlines:
    return Deadlines(open_s=_CLIENT_SHARE * rollout.reset_timeout_s, step_s=_CLIENT_SHARE * rollout.step_timeout_s)


class EnvConnector:
    """Opens environments for `OpenEnvs`."""

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
        self.remark = note
        """Shows a remark to whoever watches the run."""
        self.num_troubles = 0
        """Times that a server of this run died, hung, sent an invalid answer, or could not be restarted."""

    async def __call__(self, name: str, settings: Environment) -> EnvClient:
        try:
            return await self._open(name, settings)
        except EnvError as error:
            raise RunError(f"environment '{name}': {error}") from error

    async def _open(self, name: str, settings: Environment) -> EnvClient:
        if settings.url is not None:
            return connect_to_server(settings, self.read_secret(settings.token), self.deadlines)
        assert settings.use is not None, "a verified plan names each environment"
        # code of a folder is never imported into this process
        if settings.transport is not Transport.HTTP and settings.replicas == 1 and not is_folder(settings.use):
            inline = InlineEnv(factory(settings.use, settings.options), deadlines=self.deadlines)
            if settings.transport is Transport.INLINE or inline.runs is Runs.INLINE:
                return inline
            await inline.close()
        return await self._serve(name, settings)

    async def _serve(self, name: str, settings: Environment) -> EnvClient:
        assert settings.use is not None

        def report_event(event: ServerEvent) -> None:
            self.note(f"environment '{name}': server {event.trouble.value.replace('_', ' ')}: {event.message}")

        return await serve(
            ServeCommand(env=settings.use, options=settings.options, arguments=_SERVER_ARGUMENTS),
            settings.replicas,
            lambda number: self.logs / (f"{name}.log" if settings.replicas == 1 else f"{name}.{number}.log"),
            report_event,
            self.deadlines,
        )

    def note(self, trouble: str) -> None:
        self.num_troubles += 1
        self.remark(trouble)

    def read_secret(self, reference: str | None) -> str | None:
        """Read a token from the environment variables; a plan holds only its name."""
        if reference is None:
            return None
        found = re.fullmatch(r"\$\{env:(\w+)[^}]*\}", reference)
        try:
            token = read_key(found[1], self.environ) if found is not None else ""
        except EnvError as error:
            raise RunError(f"the token {reference}: {error}") from error
        if not token:
            raise RunError(f"the token {reference} is not set: set that environment variable")
        return token


def connect_to_server(settings: Environment, token: str | None, deadlines: Deadlines) -> EnvClient:
    assert settings.url is not None
    return _CONNECTORS[settings.dialect](settings.url, settings, token, deadlines)


def _connect_native(url: str, settings: Environment, token: str | None, deadlines: Deadlines) -> EnvClient:
    return HttpEnv(url, token=token, deadlines=deadlines)


def _connect_agentgym(url: str, settings: Environment, token: str | None, deadlines: Deadlines) -> EnvClient:
    assert settings.kind is not None, "a verified plan says which kind"
    return AgentGymEnv(url, settings.kind, token=token, deadlines=deadlines)


def _connect_openenv(url: str, settings: Environment, token: str | None, deadlines: Deadlines) -> EnvClient:
    from ...envs.clients.openenv import OpenEnvEnv  # nothing else uses WebSockets

    return OpenEnvEnv(url, token=token, deadlines=deadlines)


_CONNECTORS: Mapping[Dialect, Callable[[str, Environment, str | None, Deadlines], EnvClient]] = {
    Dialect.NATIVE: _connect_native,
    Dialect.AGENTGYM: _connect_agentgym,
    Dialect.OPENENV: _connect_openenv,
}


OpenClient = Callable[[str, Environment], Awaitable[EnvClient]]
"""Connects to an environment: in this process, on a server of this run, or at an address."""


class OpenEnvs:
    """Open environments of a run: opened on first use, shared by all stages with equal settings, closed together."""

    def __init__(self, open_client: OpenClient, remark: Callable[[str], None] = lambda text: None) -> None:
        self._open = open_client
        self._remark = remark
        self._clients: dict[str, EnvClient] = {}
        self._specs: dict[str, EnvSpec] = {}
        self._sessions: dict[str, SessionLimit] = {}
        self._told: set[str] = set()

    def remark(self, text: str) -> None:
        """Show a remark to whoever watches the run, once."""
        if text not in self._told:
            self._told.add(text)
            self._remark(text)

    async def get(self, name: str, settings: Environment) -> ConnectedEnv:
        key = _make_key(settings)
        with stop_on_env_error(f"'{name}' at {settings.url}" if settings.url else f"'{name}'"):
            if key not in self._clients:
                self._clients[key] = await self._open(name, settings)
            client = self._clients[key]
            spec = await client.spec()
        if spec != self._specs.setdefault(key, spec):
            known = self._specs[key]
            raise StepRefused(
                f"environment '{name}': its server was {known.name} {known.version} and is now "
                f"{spec.name} {spec.version}; restore the first one and resume"
            )
        sessions = self._sessions.setdefault(key, SessionLimit(self._remark))
        sessions.allowed = settings.sessions
        return ConnectedEnv(name=name, client=client, spec=spec, success_at=settings.success_at, sessions=sessions)

    async def all(self, settings: Mapping[str, Environment]) -> dict[str, ConnectedEnv]:
        return {name: await self.get(name, each) for name, each in settings.items()}

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()


@contextmanager
def stop_on_env_error(name: str) -> Iterator[None]:
    """Turn an environment's error into StepRefused."""
    try:
        yield
    except EnvError as error:
        raise StepRefused(f"environment {name}: {error}") from error


def _make_key(settings: Environment) -> str:
    """Return a key that is equal for settings of the same environment, for any tasks and weights."""
    where = (settings.use, settings.url, settings.dialect, settings.kind, settings.token)
    how = (settings.replicas, settings.transport, dict(settings.options))
    return json.dumps([*where, *how], sort_keys=True, default=list)
