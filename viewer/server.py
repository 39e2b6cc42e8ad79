"""The viewer's server: who may ask, what may be asked, and with which headers it is answered.

It listens on this machine only, and answers only clients that know its token and use the host name of its address: a
stranger's page does not know the token, and a name that points here by DNS rebinding is another.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hmac import compare_digest
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .api import api_routes, json_response
from .runs import Runs

__all__ = ["FETCHED", "HEADERS", "HOST", "STATIC", "create_viewer", "read_static", "serve_viewer"]

HOST = "127.0.0.1"
STATIC = Path(__file__).with_name("static")
FETCHED: Mapping[str, Path] = {
    name: Path(__file__).parent / "node_modules" / "uplot" / "dist" / name
    for name in ("uPlot.iife.min.js", "uPlot.min.css")
}
"""Third-party files by the names that pages use: `make setup` fetches them. Pages work without one that is missing."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Of every answer."""

_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
"""Of files that are served; others are not."""
_INDEX = "index.html"
_READING = ("GET", "HEAD")
_STOP_S = 1


def create_viewer(
    runs: Runs,
    *,
    port: int,
    token: str,
    static: Path = STATIC,
    more: Sequence[Route] = (),
    abilities: Sequence[str] = (),
) -> ASGIApp:
    """Make the application; the static files are those that are there now. `more` answers what `abilities` names for
    the pages: what they may do besides looking."""
    files = read_static(static)

    def page(_: Request) -> Response:
        return _static(files, _INDEX)

    def file(request: Request) -> Response:
        return _static(files, request.path_params["name"])

    def list_abilities(_: Request) -> Response:
        return json_response({"abilities": list(abilities)})

    routes = [
        Route("/", page, methods=["GET"]),
        Route("/static/{name:path}", file, methods=["GET"]),
        Route("/api/abilities", list_abilities, methods=["GET"]),
        *more,
        *api_routes(runs),
    ]
    application = Starlette(routes=routes, exception_handlers={HTTPException: _refuse})
    application.router.redirect_slashes = False
    return _Guard(application, port, token, takes_posts=any("POST" in (route.methods or ()) for route in more))


async def serve_viewer(application: ASGIApp, listener: socket.socket, tell: Callable[[], None]) -> None:
    """Serve until a signal; `tell` is called once it listens."""
    config = uvicorn.Config(
        application,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=_STOP_S,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
    await _Server(config, tell).serve(sockets=[listener])


class _Guard:
    """Refuses clients without the token or with another host name, and puts the headers on every answer."""

    def __init__(self, application: ASGIApp, port: int, token: str, *, takes_posts: bool) -> None:
        self._application = application
        self._methods = (*_READING, "POST") if takes_posts else _READING
        self._hosts = [f"{name}:{port}".encode() for name in (HOST, "localhost")]
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"no '{scope['type']}' is served")

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        _, _, path = scope["path"].partition("/")
        token, slash, rest = path.partition("/")
        if not self._is_allowed(scope, token):
            answer: ASGIApp = json_response({"error": "this address is not that which the viewer has printed"}, 403)
        elif scope["method"] not in self._methods:
            answer = json_response({"error": f"only {', '.join(self._methods)} are answered"}, 405)
        elif scope["method"] == "POST" and not self._is_of_own_page(scope):
            answer = json_response({"error": "only a page of this viewer may do that"}, 403)
        elif not slash:
            answer = json_response({"error": "there is nothing here; the address ends with '/'"}, 404)
        else:
            answer = self._application
            scope = {**scope, "path": f"/{rest}", "raw_path": b"", "root_path": ""}
        await answer(scope, receive, send_safely)

    def _is_allowed(self, scope: Scope, token: str) -> bool:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        is_known = compare_digest(token.encode(errors="replace"), self._token)
        return is_known and len(hosts) == 1 and hosts[0] in self._hosts

    def _is_of_own_page(self, scope: Scope) -> bool:
        """Whether the browser says that the asking page is ours; a form on a stranger's page cannot send this type."""
        named = [
            [value for name, value in scope["headers"] if name == wanted] for wanted in (b"origin", b"content-type")
        ]
        origins = [b"http://" + host for host in self._hosts]
        return len(named[0]) == 1 and named[0][0] in origins and named[1] == [b"application/json"]


def _refuse(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return json_response({"error": "there is nothing here" if status == 404 else "this cannot be asked"}, status)


def read_static(folder: Path = STATIC) -> dict[str, tuple[bytes, str]]:
    """Read the files of the pages: each file's content and type by its name, which may have a folder in it."""
    own = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if file.suffix in _TYPES}
    files = {name: file for name, file in {**FETCHED, **own}.items() if file.is_file()}
    return {name: (file.read_bytes(), _TYPES[file.suffix]) for name, file in files.items()}


def _static(files: Mapping[str, tuple[bytes, str]], name: str) -> Response:
    if name not in files:
        raise HTTPException(404)
    content, type_ = files[name]
    return Response(content, headers={"Content-Type": type_})


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, tell: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = tell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, but do not die from it afterwards: a requested stop is not a failure."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.should_exit = True
