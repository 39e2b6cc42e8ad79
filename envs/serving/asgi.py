"""The little of HTTP that the server needs: a request read within limits, a reply sent, routes as a table.

Raw ASGI, because a step of a light environment costs microseconds and a web framework would cost a hundred times that.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qs

from ..errors import BadRequest, EnvError, EnvFault, FaultKind, NotFound, TooLarge, Unauthorized, WrongMethod
from ..wire import WireError, dump, load_object

__all__ = [
    "ASGIReceive",
    "ASGIScope",
    "ASGISend",
    "Handler",
    "Reply",
    "Request",
    "Route",
    "Routes",
    "WireDialect",
    "encode_reply",
    "find_handler",
    "not_found",
    "read_body",
    "refuse_web_pages",
    "send_reply",
]

ASGIScope: TypeAlias = MutableMapping[str, Any]
ASGIReceive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
ASGISend: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    data: object = None
    """To be sent as JSON, bytes as they are; nothing is sent under status 204."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    kind: bytes = b"application/json"


@dataclass(frozen=True, slots=True)
class Request:
    scope: ASGIScope
    id: str
    """What stood where the route has a '*'."""
    body: bytes

    @property
    def data(self) -> dict[str, Any]:
        """The body as a JSON object; an empty body is an empty one."""
        try:
            return load_object(self.body) if self.body else {}
        except WireError as error:
            raise BadRequest(str(error)) from error

    def query(self, name: str) -> str | None:
        try:
            values = parse_qs(self.scope["query_string"].decode("ascii"), max_num_fields=16).get(name, [])
        except ValueError as error:
            raise BadRequest("the query could not be read") from error
        return values[0] if len(values) == 1 else None


Handler: TypeAlias = Callable[[Request], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Route:
    """A handler, and what the server's own description says of it."""

    handler: Handler
    summary: str
    body: Mapping[str, Any] | None = None
    """JSON schema of what is to be sent."""
    query: Mapping[str, Any] = field(default_factory=dict)
    """JSON schemas of what the query may hold, by name."""


Routes: TypeAlias = Mapping[tuple[str, ...], Mapping[str, Route]]
"""Path, '*' standing for any one segment, to method to route."""


class WireDialect(Protocol):
    """A wire format of the server: its routes, and how it reports an error."""

    @property
    def name(self) -> str: ...

    @property
    def routes(self) -> Routes: ...

    def failure(self, error: EnvError) -> Reply: ...


def find_handler(routes: Routes, scope: ASGIScope) -> tuple[Handler, str] | None:
    """The handler and the wildcard's value; None for a path that these routes do not have."""
    path = tuple(scope["path"].split("/")[1:])
    methods, wildcard = routes.get(path), ""
    if methods is None and len(path) > 1:
        methods, wildcard = routes.get((path[0], "*", *path[2:])), path[1]
    if methods is None:
        return None
    if scope["method"] not in methods:
        raise WrongMethod(f"expected {' or '.join(methods)}")
    return methods[scope["method"]].handler, wildcard


def not_found(scope: ASGIScope) -> NotFound:
    return NotFound(f"no route '{scope['path'][:60]}'")


_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?")


def refuse_web_pages(scope: ASGIScope) -> None:
    """Refuse what a page in a browser on this machine may have sent, which reaches a server on it too.

    A page from elsewhere has another origin than the server, unless its name was made to resolve to this machine; then
    the server is called by that name.
    """
    hosts, origins = (_values(scope, name) for name in (b"host", b"origin"))
    local = _is_loopback((scope.get("server") or [""])[0])
    if local and not (len(hosts) == 1 and _LOOPBACK.fullmatch(hosts[0])):
        raise Unauthorized(
            "expected 'Host' to be localhost, 127.0.0.1 or [::1]: a server without a token answers to no other name"
        )
    if origins and not (local and len(origins) == 1 and origins[0] in (f"http://{hosts[0]}", f"https://{hosts[0]}")):
        raise Unauthorized("expected no request from a web page: only a server with a token answers those that know it")


def _values(scope: ASGIScope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1").lower() for name, value in scope["headers"] if name == wanted]


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address.removeprefix("::ffff:")).is_loopback
    except ValueError:
        return False


async def read_body(receive: ASGIReceive, limit: int) -> bytes:
    body, more = b"", True
    while more and len(body) <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("the request was interrupted")
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if len(body) > limit:
        raise TooLarge(f"the body is longer than {limit} bytes")
    return body


def encode_reply(reply: Reply) -> Reply:
    """Encode a reply's data as bytes."""
    if isinstance(reply.data, bytes):
        return reply
    try:
        data = b"" if reply.status == 204 else dump(reply.data)
    except (TypeError, ValueError, RecursionError) as error:
        raise EnvFault(f"the answer is not JSON: {error}", kind=FaultKind.GARBAGE) from error
    return Reply(reply.status, data, reply.headers, reply.kind)  # `replace` takes three times as long


async def send_reply(send: ASGISend, reply: Reply) -> None:
    body = encode_reply(reply).data
    assert isinstance(body, bytes)
    headers = [(b"content-type", reply.kind), (b"content-length", str(len(body)).encode()), *reply.headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
