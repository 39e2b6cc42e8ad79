"""Requests to a server, each with a deadline over all its tries; trouble on the way arrives as an `EnvFault`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias

import httpx

from ..errors import BadOption, EnvError, EnvFault, FaultKind
from ..limits import MAX_ANSWER, oversized
from ..wire import WireError, dump, load_json
from .keepalive import MAX, KeepAlive, TooLong

__all__ = ["Calls", "HttpRequest", "ReadResponse", "make_garbage_fault", "read_json"]

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_QUOTED = 80
"""Bytes of an unreadable answer that a message quotes."""
_ADDRESS = "http://127.0.0.1:8200"
_LAST_PORT = 65535
_OF_GATEWAYS = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
"""A gateway reports that the server is not there; it may come back."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    body: bytes | None = None
    max_answer: int = MAX_ANSWER

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def headers(self) -> dict[str, str]:
        return {"content-type": "application/json"} if self.body is not None else {}


ReadResponse: TypeAlias = Callable[[HttpRequest, httpx.Response], Any]
"""Turns a response into its content, or raises the error that it reports."""


class Calls:
    """Requests to one server, in one dialect.

    Retries while the connection fails or the server is full. Where `repeats` is false it retries only what certainly
    never reached the server: such a dialect cannot recognise a repeated request.
    """

    def __init__(
        self,
        url: str,
        answer: ReadResponse,
        *,
        repeats: bool,
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._answer = answer
        self._repeats = repeats
        address = _address(url)
        self.name = str(address.copy_with(userinfo=b"", query=None))
        """What faults call the environment: its address, until more is known."""
        self._http = httpx.AsyncClient(
            # a user and password would be sent in place of the token
            base_url=address if token is None else address.copy_with(userinfo=b""),
            headers={"authorization": f"Bearer {_sendable(token)}"} if token is not None else {},
            timeout=None,  # each call has a deadline over all its tries
            transport=transport or KeepAlive(),
            trust_env=False,
        )

    async def get(self, path: str, deadline_s: float, max_answer: int = MAX_ANSWER) -> Any:
        return await self._call(HttpRequest("GET", path, max_answer=max_answer), deadline_s)

    async def post(self, path: str, body: object, deadline_s: float) -> Any:
        return await self._call(HttpRequest("POST", path, dump(body)), deadline_s)

    async def try_once(self, asked: HttpRequest, deadline_s: float) -> None:
        """Send a request and ignore how it ends."""
        with suppress(EnvError, TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._once(asked)

    async def close(self) -> None:
        await self._http.aclose()

    async def _call(self, asked: HttpRequest, deadline_s: float) -> Any:
        trouble: list[EnvFault] = []
        try:
            async with asyncio.timeout(deadline_s):
                return await self._until_answered(asked, trouble)
        except TimeoutError:
            if trouble:
                raise trouble[-1] from None
            raise EnvFault(f"no answer to {asked} within {deadline_s:g} s", kind=FaultKind.DEADLINE) from None

    async def _until_answered(self, asked: HttpRequest, trouble: list[EnvFault]) -> Any:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._once(asked)
            except EnvFault as fault:
                if not self._may_ask_again(fault):
                    raise
                trouble.append(fault)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _may_ask_again(self, fault: EnvFault) -> bool:
        if fault.kind is FaultKind.UNREACHABLE:
            return self._repeats or isinstance(fault.__cause__, httpx.ConnectError)
        return fault.kind is FaultKind.BUSY

    async def _once(self, asked: HttpRequest) -> Any:
        try:
            response = await self._http.request(
                asked.method,
                asked.path,
                content=asked.body,
                headers=asked.headers,
                extensions={MAX: asked.max_answer},
            )
        except TooLong as error:
            raise oversized(self.name, str(asked), error.limit) from error
        except (httpx.DecodingError, httpx.InvalidURL, UnicodeError) as error:
            raise make_garbage_fault(asked, str(error)) from error
        except httpx.TransportError as error:
            message = f"{asked}: {type(error).__name__}: {error}"
            raise EnvFault(message, kind=FaultKind.UNREACHABLE) from error
        return self._answer(asked, response)


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
        address.host.encode("idna")
    except (httpx.InvalidURL, UnicodeError) as error:
        raise BadOption(f"expected an address such as {_ADDRESS}: {error}") from error
    if address.scheme not in ("http", "https") or not address.host or not 0 <= (address.port or 0) <= _LAST_PORT:
        # not quoted: it may hold a password
        raise BadOption(f"expected an address such as {_ADDRESS}, with a port up to {_LAST_PORT}")
    return address


def _sendable(token: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise BadOption("expected a token of printable ASCII only")
    return token


def read_json(asked: HttpRequest, response: httpx.Response) -> Any:
    """The response's JSON, under any status."""
    try:
        return load_json(response.content)
    except WireError as error:
        what = f"status {response.status_code}, {error}: {response.content[:_QUOTED]!r}"
        if response.status_code in _OF_GATEWAYS:
            raise EnvFault(f"{asked}: {what}", kind=FaultKind.UNREACHABLE) from error
        raise make_garbage_fault(asked, what) from error


def make_garbage_fault(asked: HttpRequest, what: str) -> EnvFault:
    return EnvFault(f"the answer to {asked.path} makes no sense: {what}", kind=FaultKind.GARBAGE)
