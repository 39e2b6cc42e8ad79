"""Serve environments: `python -m agym.envs.serving.serve textcraft --port 8200 --options '{"world": "small"}'`.

Writes one JSON line `{"url": ...}` to standard output once it listens, and shuts down cleanly on SIGTERM or SIGINT.
With `--port 0` the system picks the port; with `--fd N` it serves on a listening socket that it inherited. With
`--leash` it lives no longer than whoever holds the other end of its standard input. What it started ends with it
(`process_guard`). Several environments are each served below their name, `/textcraft` and `/babyai`. With `--workers N`
each is played in N processes of its own, which are restarted when they die; this one then only answers requests.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn

from ..clients.replicas import serve
from ..clients.supervise import ServeCommand, ServerEvent
from ..errors import BadOption, EnvError
from ..listener import listen, url_of
from ..protocol import Json
from ..registry import factory, short_name
from ..wire import WireError, dump, options_from
from .arguments import add_arguments
from .process_guard import run_guarded
from .remote_pool import Distant
from .server import EnvServer, MultiEnvServer, ServerSettings
from .slow_clients import TimedHttp

__all__ = ["main", "run"]

_STOP_S = 10
"""How long a graceful stop may take."""
_WORKERS_SESSIONS = 1_000_000
"""The process that answers requests limits them."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="agym.envs.serving.serve", description="Serve environments over HTTP.")
    add_arguments(parser)
    return run(parser.parse_args(argv))


def run(args: argparse.Namespace) -> int:
    return run_guarded(lambda: _run(args), leashed=args.leash)


def _run(args: argparse.Namespace) -> int:
    try:
        stuck = asyncio.run(_serve(args))
    except (EnvError, WireError, OSError) as error:
        print(f"cannot serve {', '.join(repr(name) for name in args.env)}: {error}", file=sys.stderr)
        return 1
    if stuck:
        # a thread that hangs inside the environment would keep the interpreter from ending
        os._exit(0)
    return 0


async def _serve(args: argparse.Namespace) -> bool:
    """Serve until stopped; return whether a call into an environment hangs."""
    listener = _listener(args)
    settings, options = _settings(args), _options(args)
    servers: dict[str, EnvServer] = {}
    # only workers write logs there; a process that is killed could not remove it
    with TemporaryDirectory(prefix="agym-serve-") if args.workers else nullcontext("") as logs:
        try:
            for name in args.env:
                servers[short_name(name)] = await _server(name, options[name], settings, args.workers, Path(logs))
        except BaseException:
            for server in servers.values():
                await server.stop()
            raise
        app = MultiEnvServer(servers) if len(servers) > 1 else next(iter(servers.values()))
        await _Server(_config(app, settings), [*servers]).serve(sockets=[listener])
    return any(server.pool.stuck for server in servers.values())


async def _server(
    name: str, options: Mapping[str, Json], settings: ServerSettings, workers: int, logs: Path
) -> EnvServer:
    if not workers:
        return EnvServer(factory(name, options), settings)
    client = await serve(
        _worker(name, options, settings),
        workers,
        lambda number: logs / f"{short_name(name)}.{number}.log",
        _tell,
        settings.deadlines,
    )
    try:
        return EnvServer(Distant(client, await client.spec()), settings)
    except BaseException:
        await client.close()
        raise


def _worker(name: str, options: Mapping[str, Json], settings: ServerSettings) -> ServeCommand:
    limits = {
        "--max-sessions": _WORKERS_SESSIONS,
        "--threads": settings.threads,
        "--lease": 2 * settings.lease_s,  # the process that answers closes them: its own lease must end first
    }
    return ServeCommand(env=name, options=options, arguments=[str(word) for pair in limits.items() for word in pair])


def _tell(event: ServerEvent) -> None:
    print(event.message, file=sys.stderr, flush=True)


def _config(app: EnvServer | MultiEnvServer, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=_STOP_S,
        lifespan="on",
        http=TimedHttp,
        ws="websockets-sansio",
        proxy_headers=False,  # the client's address makes no difference here, nor does a proxy's word on it
        server_header=False,
        ws_max_size=settings.max_body,
    )


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, names: Sequence[str]) -> None:
        super().__init__(config)
        self._names = names

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            url = url_of(listener)
            below = {"environments": {name: f"{url}/{name}" for name in self._names}} if len(self._names) > 1 else {}
            sys.stdout.buffer.write(dump({"url": url, **below}) + b"\n")
        sys.stdout.flush()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal, but do not die of it afterwards: a requested stop is no failure."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        # however often: the guard also passes on what a terminal sends to the whole group
        self.should_exit = True


def _options(args: argparse.Namespace) -> Mapping[str, Mapping[str, Json]]:
    given = options_from(args.options)
    if len(args.env) == 1:
        return {args.env[0]: given}
    if len({short_name(name) for name in args.env}) < len(args.env):
        raise BadOption("an environment can be served once at an address")
    for name, each in given.items():
        if name not in args.env or not isinstance(each, Mapping):
            raise BadOption(f"options of several environments are by their names; '{name[:40]}' is none with options")
    return {name: dict(given.get(name, {})) for name in args.env}  # type: ignore[arg-type]


def _settings(args: argparse.Namespace) -> ServerSettings:
    given = {"max_sessions": args.max_sessions, "lease_s": args.lease, "threads": args.threads}
    chosen = {name: value for name, value in given.items() if value is not None}
    return ServerSettings(token=args.token, agentgym=args.agentgym, **chosen)


def _listener(args: argparse.Namespace) -> socket.socket:
    if args.fd is not None:
        return socket.socket(fileno=args.fd)
    return listen(args.host, args.port)


if __name__ == "__main__":
    sys.exit(main())
