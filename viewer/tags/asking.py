"""Requests that do something: a small JSON object in, JSON out; what cannot be done is reported with its status."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..api import Refused, json_response
from ..runs import Run, Runs

__all__ = ["Body", "find_run", "posting", "reading"]

T = TypeVar("T")

_LARGEST = 1 << 20
"""Bytes of a request."""


class Body:
    """The object that a request holds."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def text(self, name: str) -> str:
        return self._take(name, str, "a text")

    def whole(self, name: str, default: int | None = None) -> int:
        return self._take(name, int, "a whole number", default)

    def flag(self, name: str) -> bool:
        return self._take(name, bool, "true or false")

    def _take(self, name: str, kind: type[T], expected: str, default: T | None = None) -> T:
        value = self._data.get(name, default)
        # true is not a number here, though it is one in Python
        if not isinstance(value, kind) or type(value) is not kind:
            raise Refused(400, f"'{name}' must be {expected}")
        return value


def find_run(runs: Runs, id_: str) -> Run:
    run = runs.get(id_) or next((each for each in runs.list() if each.id == id_), None)
    if run is None:
        raise Refused(404, "there is no such run")
    return run


def posting(path: str, answer: Callable[[Body], Awaitable[Any]]) -> Route:
    """A route that does something."""

    async def endpoint(request: Request) -> Response:
        try:
            return json_response(await answer(await _read_body(request)))
        except Refused as refusal:
            return json_response({"error": str(refusal)}, refusal.status)

    return Route(path, endpoint, methods=["POST"])


def reading(path: str, answer: Callable[[Request], Any]) -> Route:
    """A route that only reports; it is computed in a thread."""

    def endpoint(request: Request) -> Response:
        try:
            answered = answer(request)
        except Refused as refusal:
            return json_response({"error": str(refusal)}, refusal.status)
        return answered if isinstance(answered, Response) else json_response(answered)

    return Route(path, endpoint, methods=["GET"])


async def _read_body(request: Request) -> Body:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST:
            raise Refused(413, f"a request has at most {_LARGEST:,} bytes")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "expected a JSON object") from error
    if not isinstance(data, dict):
        raise Refused(400, "expected a JSON object")
    return Body(data)
