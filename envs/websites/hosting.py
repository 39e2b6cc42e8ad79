"""The sites over HTTP, for all episodes of this process.

`answer_request` is the pure part. A `SiteWorld` is one episode's data and who is logged in; the server knows it by a
secret that each request of its browser carries.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from secrets import token_urlsafe
from socket import socket
from threading import Lock, Thread
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from uvicorn import Config, Server

from ..listener import listen
from .checks import SiteOutcome, compare_tables
from .framework.site import (
    KEEP,
    TODAY,
    Host,
    Keep,
    PageError,
    PageHandler,
    PageNotFound,
    PageRequest,
    Redirect,
    SitePage,
    WebSite,
)

__all__ = ["HEADER", "Hosting", "SiteReply", "SiteWorld", "answer_request", "create_app", "open_copy"]

HEADER = "x-world"
"""Carries the secret by which an episode's requests are known."""
_LONGEST_BODY = 65_536
_LONGEST_PATH = 1000
_LONGEST_FIELD = 8000
_LONGEST_PARAMETER = 200
_MOST_FIELDS = 200
_STOP_S = 10.0


# --- one request ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReply:
    status: int
    html: str = ""
    to: str = ""
    """Where to go instead, a path."""
    user: str | Keep | None = KEEP


def answer_request(site: WebSite, db: sqlite3.Connection, request: PageRequest) -> SiteReply:
    """Answer a request; changes are kept only if nothing went wrong."""
    host = site.hosts[request.host]
    try:
        with db:
            handler, named = _find_handler(host, request)
            answered = handler(db, request, named)
    except PageError as wrong:
        values = {"status": wrong.status, "message": str(wrong)}
        answered = SitePage(template="error.html", values=values, status=wrong.status)
    if isinstance(answered, Redirect):
        return SiteReply(status=303, to=answered.to, user=answered.user)
    with db:  # what is shared may be messages, which are gone once they have been shown
        values = {**site.shared(db, request), **answered.values}
    template = _load_templates(site).get_template(answered.template)
    html = template.render(**values, request=request, user=request.user, today=TODAY, host=host)
    return SiteReply(status=answered.status, html=html)


def _find_handler(host: Host, request: PageRequest) -> tuple[PageHandler, Mapping[str, str]]:
    for route in host.routes:
        named = route.match(request)
        if named is not None:
            return route.handler, named
    raise PageNotFound


@cache
def _load_templates(site: WebSite) -> Environment:
    made = Environment(
        loader=FileSystemLoader((site.templates, Path(__file__).parent / "templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(site.filters)
    return made


# --- data ---


@cache
def _seed(site: WebSite) -> bytes:
    """The data of a site as an episode begins with it."""
    db = sqlite3.connect(":memory:")
    db.executescript(site.schema)
    with db:
        site.fill(db, Random(site.name))
    return db.serialize()


def open_copy(site: WebSite) -> sqlite3.Connection:
    """Open a new copy of a site's initial data."""
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.deserialize(_seed(site))
    db.execute("PRAGMA foreign_keys = ON")
    db.row_factory = sqlite3.Row
    for name, function in site.functions.items():
        db.create_function(name, -1, function, deterministic=True)
    return db


class SiteWorld:
    """The sites of one episode; any thread may ask."""

    def __init__(self, sites: Sequence[WebSite]) -> None:
        self._sites = {host: site for site in sites for host in site.hosts}
        self._users = {name: host.user for site in sites for name, host in site.hosts.items()}
        self._data: dict[str, sqlite3.Connection] = {}
        """Of the sites that were asked for anything."""
        self._lock = Lock()

    def answer(self, method: str, host: str, path: str, query: str, body: str) -> SiteReply:
        site = self._sites.get(host)
        if site is None:
            return SiteReply(status=404)
        try:
            request = PageRequest(
                method=method,
                host=host,
                path=_clean(path, _LONGEST_PATH),
                query=_read_fields(query, _LONGEST_PARAMETER),
                form=_read_fields(body, _LONGEST_FIELD),
                user=self._users[host],
            )
        except ValueError:  # too many fields
            return SiteReply(status=400)
        with self._lock:
            reply = answer_request(site, self._open(site), request)
            if reply.user is not KEEP:
                self._users[host] = reply.user
        return reply

    def _open(self, site: WebSite) -> sqlite3.Connection:
        if site.name not in self._data:
            self._data[site.name] = open_copy(site)
        return self._data[site.name]

    def outcome(self) -> SiteOutcome:
        sites = {site.name: site for site in self._sites.values()}
        before = {name: open_copy(site) for name, site in sites.items()}
        with self._lock:
            changed = {
                table: change
                for name, db in self._data.items()
                for table, change in compare_tables(name, before[name], db, sites[name].passing).items()
            }
            return SiteOutcome(before=before, after={**before, **self._data}, changes=changed)


def _read_fields(encoded: str, longest: int) -> dict[str, str]:
    pairs = parse_qsl(encoded, keep_blank_values=True, errors="replace", max_num_fields=_MOST_FIELDS)
    return {name: _clean(value, longest) for name, value in pairs}


def _clean(text: str, longest: int) -> str:
    plain = text.replace("\r\n", "\n")[:longest]
    return "".join(letter for letter in plain if letter.isprintable() or letter == "\n")


# --- the server ---

_Message: TypeAlias = Mapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]


def create_app(
    world_of: Callable[[Mapping[str, str]], SiteWorld | None],
) -> Callable[[_Message, _Receive, _Send], Awaitable[None]]:
    """An ASGI app that serves the world that a request's headers name."""

    async def serve(scope: _Message, receive: _Receive, send: _Send) -> None:
        body = await _receive_body(receive)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        world = world_of(headers)
        if world is None or body is None:
            reply = SiteReply(status=403 if world is None else 413)
        else:
            host, query = headers.get("host", "").partition(":")[0], scope["query_string"].decode("latin-1")
            reply = world.answer(scope["method"], host, scope["path"], query, body)
        await _send(reply, send)

    return serve


async def _receive_body(receive: _Receive) -> str | None:
    read, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect" or len(read) > _LONGEST_BODY:
            return None
        read, more = read + message.get("body", b""), message.get("more_body", False)
    return read.decode("latin-1")


async def _send(reply: SiteReply, send: _Send) -> None:
    html = reply.html.encode("utf-8", "replace")
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(html)).encode()),
        # going back shows what there is now
        (b"cache-control", b"no-store"),
    ]
    if reply.to:
        headers.append((b"location", quote(reply.to, safe="/?&=%#+:,;@!~*'()").encode("ascii")))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": html})


class Hosting:
    """One server for all episodes of a process, running as long as anybody needs it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._num_seats = 0
        self._running: tuple[Server, Thread, socket] | None = None
        self._worlds: dict[str, SiteWorld] = {}

    def enter(self) -> str:
        """Take a place; returns the address of all sites. Call `leave` in the end."""
        with self._lock:
            self._num_seats += 1
            if self._running is None:
                self._running = self._start()
            host, port = self._running[2].getsockname()
            return f"{host}:{port}"

    def _start(self) -> tuple[Server, Thread, socket]:
        listener = listen("127.0.0.1", 0)
        serve = create_app(lambda headers: self._worlds.get(headers.get(HEADER, "")))
        server = Server(Config(serve, lifespan="off", ws="none", log_config=None, log_level="error", access_log=False))
        thread = Thread(target=server.run, args=([listener],), name="websites", daemon=True)
        thread.start()
        return server, thread, listener

    def leave(self) -> None:
        with self._lock:
            self._num_seats -= 1
            if self._num_seats or self._running is None:
                return
            (server, thread, listener), self._running = self._running, None
            server.should_exit = server.force_exit = True
            thread.join(_STOP_S)
            listener.close()

    def admit(self, world: SiteWorld) -> str:
        """Register a world under a new secret."""
        secret = token_urlsafe(16)
        self._worlds[secret] = world
        return secret

    def dismiss(self, secret: str) -> None:
        self._worlds.pop(secret, None)
