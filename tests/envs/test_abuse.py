"""Requests made from the server's own description: whatever fits it, or nearly, is answered, and never with a 5xx."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from agym.envs.protocol import Env
from agym.envs.registry import factory
from agym.envs.serving.agentgym import AgentGym
from agym.envs.serving.server import EnvServer, ServerSettings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Make = Callable[[], Env]
PATIENCE_S = 5
TOKEN = {"authorization": "Bearer right"}
KNOWN = ("key", "scripted", "counter", "0", "train", "train-0", "reach-7", "win", "..", "%2e%2e", "", "\x00", "é")


@asynccontextmanager
async def serving(make: Make, **chosen: Any) -> AsyncIterator[tuple[httpx.AsyncClient, EnvServer]]:
    app = EnvServer(make, ServerSettings(**chosen))
    numbered = app.dialects[1]
    assert isinstance(numbered, AgentGym)
    numbered._base = 0  # else no number that is drawn would be one of an environment
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env") as http:
        yield http, app
    await app.stop()


DESCRIPTION = EnvServer(factory("counter")).description()
OPERATIONS = [
    (path, method, operation) for path, methods in DESCRIPTION["paths"].items() for method, operation in methods.items()
]

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def fitting(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return st.one_of(*(fitting({**schema, "type": kind}) for kind in kinds))
    if "pattern" in schema:
        return st.from_regex(schema["pattern"])
    table: Mapping[Any, Callable[[], st.SearchStrategy[Any]]] = {
        "string": lambda: st.sampled_from(KNOWN) | st.text(max_size=20),
        "integer": lambda: st.integers(schema.get("minimum"), schema.get("maximum")) | st.integers(0, 3),
        "null": st.none,
        "array": lambda: st.lists(fitting(schema.get("items", {})), max_size=3),
        "object": lambda: fitting_object(schema),
    }
    return table.get(kinds, lambda: anything)()


def fitting_object(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    properties, required = schema.get("properties", {}), set(schema.get("required", ()))
    return st.fixed_dictionaries(
        {name: fitting(each) for name, each in properties.items() if name in required},
        optional={name: fitting(each) for name, each in properties.items() if name not in required},
    )


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, dict[str, Any]]:
    """A request that fits the description, or one whose body, path or query is nearly so."""
    path, method, operation = draw(st.sampled_from(OPERATIONS))
    path = path.replace("{id}", quote(draw(st.sampled_from(KNOWN) | st.text(max_size=10)), safe=""))
    sent: dict[str, Any] = {}
    query = {
        each["name"]: draw(fitting(each["schema"]) | st.text(max_size=5))
        for each in operation["parameters"]
        if each["in"] == "query" and draw(st.booleans())
    }
    if query:
        sent["params"] = query
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if schema is not None:
        body = draw(fitting(schema))
        if draw(st.integers(0, 3)) == 0:
            body = draw(st.just({**body, draw(st.sampled_from([*body, "x"])): draw(anything)}) | anything)
        sent["json"] = body
    if draw(st.integers(0, 9)) == 0:
        sent = {"content": draw(st.binary(max_size=50))}
    return draw(st.sampled_from([method] * 8 + ["put", "patch"])), path, sent


def test_the_description_is_of_every_route() -> None:
    app = EnvServer(factory("counter"))
    routes = {
        ("/" + "/".join("{id}" if part == "*" else part for part in path), method.lower())
        for dialect in app.dialects
        for path, methods in dialect.routes.items()
        for method in methods
    }
    assert {(path, method) for path, method, _ in OPERATIONS} == routes
    assert DESCRIPTION["openapi"] == "3.1.0"
    assert all(operation["summary"] and operation["responses"] for _, _, operation in OPERATIONS)


@pytest.mark.parametrize("family", ["textcraft", "babyai", "sciworld", "webarena", "searchqa"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(requests(), min_size=1, max_size=6))
def test_no_request_made_from_it_is_answered_with_a_mistake_of_ours_or_not_at_all(
    scripted: Make, family: str, calls: list[tuple[str, str, dict[str, Any]]]
) -> None:
    async def go() -> None:
        async with serving(scripted, agentgym=family) as (http, app):
            await http.post("/sessions", json={"task": "train-0", "seed": 0, "key": "key"})
            await http.post("/create", json={})
            for method, path, sent in calls:
                async with asyncio.timeout(PATIENCE_S):
                    response = await http.request(method, path, **sent)
                assert response.status_code < 500, (method, path, sent, response.text)
                assert response.status_code == 204 or "json" in response.headers["content-type"] or path == "/metrics"
            assert len(app.sessions) <= len(calls) + 2

    asyncio.run(go())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    call=requests(), given_token=st.sampled_from([None, "Bearer", "Bearer ", "Bearer wrong", "right", "bearer right"])
)
def test_nothing_is_done_for_who_brings_no_token(
    scripted: Make, journal: list[str], call: tuple[str, str, dict[str, Any]], given_token: str | None
) -> None:
    async def go() -> None:
        async with serving(scripted, token="right") as (http, app):
            method, path, sent = call
            headers = {"authorization": given_token} if given_token is not None else {}
            response = await http.request(method, path, headers=headers, **sent)
            refused = response.status_code in (401, 404, 405) or "error" in response.json()
            assert refused or path in ("/health", "/openenv/health")
            assert len(app.sessions) == 0

    asyncio.run(go())
    assert not any(entry.startswith("reset") for entry in journal)


async def test_the_description_and_the_metrics_are_served(scripted: Make) -> None:
    async with serving(scripted, token="right") as (http, _):
        assert (await http.get("/openapi.json")).status_code == 401
        described = (await http.get("/openapi.json", headers=TOKEN)).json()
        assert described["info"]["title"] == "scripted"
        assert described["security"] == [{"token": []}]
        assert (await http.get("/metrics")).status_code == 401
