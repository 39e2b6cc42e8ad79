"""Serve one environment: `python -m agym.envs.serve textcraft --port 8200 --options '{"world": "small"}'`.

Writes one JSON line `{"url": ...}` to standard output once it listens, and stops in good order at SIGTERM or SIGINT.
With `--port 0` the system picks the port; with `--fd N` it serves on a listening socket that it inherited. With
`--leash` it lives no longer than whoever holds the other end of its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from .errors import EnvError
from .listener import listen, url_of
from .registry import factory
from .server import EnvServer, ServerSettings
from .wire import WireError, dump, options_from

__all__ = ["main"]

_DEFAULTS = ServerSettings()

_STOP_S = 10
"""How long a graceful stop may take."""


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.leash:
        _hold_leash()
    try:
        app = EnvServer(factory(args.env, options_from(args.options)), _settings(args))
        listener = _listener(args)
    except (EnvError, WireError, OSError) as error:
        print(f"cannot serve '{args.env}': {error}", file=sys.stderr)
        return 1
    asyncio.run(_serve(app, listener))
    if app.pool.stuck:
        # a thread that hangs inside the environment would keep the interpreter from ending
        os._exit(0)
    return 0


async def _serve(app: EnvServer, listener: socket.socket) -> None:
    server = _Server(
        uvicorn.Config(app, access_log=False, log_level="warning", timeout_graceful_shutdown=_STOP_S, lifespan="on")
    )
    await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            sys.stdout.buffer.write(dump({"url": url_of(listener)}) + b"\n")
        sys.stdout.flush()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, as ever, but do not die of it afterwards: a stop that was asked for is no failure."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agym.envs.serve", description="Serve one environment over HTTP.")
    parser.add_argument("env", help="name of the environment")
    parser.add_argument("--options", default="{}", help="its options, as JSON")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8200)
    parser.add_argument("--fd", type=int, help="an inherited listening socket, in place of host and port")
    parser.add_argument("--leash", action="store_true", help="stop when standard input closes")
    parser.add_argument("--token-file", type=Path, help="a file with the bearer token that clients must bring")
    parser.add_argument("--max-sessions", type=int, default=_DEFAULTS.max_sessions)
    parser.add_argument("--lease", type=float, default=_DEFAULTS.lease_s, help="seconds")
    parser.add_argument("--threads", type=int, default=_DEFAULTS.threads)
    return parser


def _settings(args: argparse.Namespace) -> ServerSettings:
    # a token in the arguments could be read by every user of the machine
    token = args.token_file.read_text("utf-8").strip() if args.token_file is not None else None
    return ServerSettings(max_sessions=args.max_sessions, lease_s=args.lease, threads=args.threads, token=token)


def _listener(args: argparse.Namespace) -> socket.socket:
    if args.fd is not None:
        return socket.socket(fileno=args.fd)
    return listen(args.host, args.port)


def _hold_leash() -> None:
    threading.Thread(target=_wait_for_the_end, name="leash", daemon=True).start()


def _wait_for_the_end() -> None:
    while os.read(0, 4096):
        pass
    # whoever started us is gone, perhaps killed: nobody else will stop our children
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
