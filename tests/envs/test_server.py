from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from agym.envs.protocol import Deadlines, Env
from agym.envs.serving.server import EnvServer, ServerSettings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Make = Callable[[], Env]


@asynccontextmanager
async def serving(make: Make, **chosen: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = EnvServer(make, ServerSettings(**chosen))
    await app.start()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env") as http:
        yield http
    await app.stop()


async def opened(http: httpx.AsyncClient, task: str = "train-0") -> str:
    response = await http.post("/sessions", json={"task": task, "seed": 0})
    assert response.status_code == 201
    session: str = response.json()["session"]
    return session


async def test_an_episode_from_first_to_last(scripted: Make, journal: list[str]) -> None:
    async with serving(scripted) as http:
        response = await http.post("/sessions", json={"task": "train-0", "seed": 5})
        assert response.json()["observation"] == {"text": "train-0 begins", "valid_actions": ["win", "cut"]}
        path = f"/sessions/{response.json()['session']}"
        assert (await http.post(f"{path}/advice", json={})).json() == {"action": "win"}
        assert (await http.post(f"{path}/noise", json={"seed": 1})).json()["action"].startswith("noise ")
        step = await http.post(f"{path}/step", json={"action": "win", "number": 0})
        assert step.json() == {
            "observation": {"text": "echo win", "valid_actions": None},
            "reward": 1.0,
            "terminated": True,
            "truncated": False,
            "status": "ok",
            "info": {"length": 3},
        }
        over = await http.post(f"{path}/step", json={"action": "win"})
        assert (over.status_code, over.json()["error"]["code"]) == (409, "episode-over")
        assert (await http.delete(path)).status_code == 204
        assert (await http.delete(path)).json()["error"]["code"] == "unknown-session"
    assert journal[:2] == ["reset train-0 5", "win"]


async def test_what_is_known_before_playing(scripted: Make) -> None:
    async with serving(scripted) as http:
        assert (await http.get("/health")).json() == {
            "status": "ok",
            "protocol": 1,
            "env": "scripted",
            "sessions": 0,
            "stuck": 0,
        }
        schema = (await http.get("/schema")).json()
        assert (schema["protocol"], schema["spec"]["name"]) == (1, "scripted")
        tasks = (await http.get("/tasks", params={"split": "test"})).json()["tasks"]
        assert tasks[0] == {"id": "test-0", "difficulty": "easy"}
        assert (await http.get("/corpus")).json() == {"texts": ["echo"]}
        assert (await http.post("/expert", json={"task": "train-0", "seed": 0})).json() == {"actions": ["win"]}
        played = {"task": "train-0", "seed": 0, "actions": ["win"]}
        first = {"text": "win", "valid_actions": None}
        reached = [{"task": "train-1", "actions": 1, "observation": first}]
        assert (await http.post("/hindsight", json=played)).json() == {"reached": reached}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/nowhere", None, 404, "not-found"),
        ("GET", "/sessions/a/b/c", None, 404, "not-found"),
        ("PUT", "/sessions", b"{}", 405, "wrong-method"),
        ("GET", "/tasks", None, 400, "bad-request"),
        ("GET", "/tasks?split=none", None, 404, "unknown-split"),
        ("GET", "/tasks?split=%ff&split=b", None, 400, "bad-request"),
        ("POST", "/sessions", b"", 400, "bad-request"),
        ("POST", "/sessions", b"[]", 400, "bad-request"),
        ("POST", "/sessions", b"{" * 50_000, 400, "bad-request"),
        ("POST", "/sessions", b'{"task": "train-0"}', 400, "bad-request"),
        ("POST", "/sessions", b'{"task": "train-0", "seed": true}', 400, "bad-request"),
        ("POST", "/sessions", b'{"task": "train-0", "seed": -1}', 400, "bad-request"),
        ("POST", "/sessions", b'{"task": "train-0", "seed": 0, "sead": 1}', 400, "bad-request"),
        ("POST", "/sessions", b'{"task": "train-0", "seed": 0, "key": "../x"}', 400, "bad-request"),
        ("POST", "/sessions", b'{"task": "no-such", "seed": 0}', 404, "unknown-task"),
        ("POST", "/sessions", b'{"task": "broken", "seed": 0}', 502, "env-fault"),
        ("POST", "/sessions/none/step", b'{"action": "a"}', 404, "unknown-session"),
        ("DELETE", "/sessions/none", None, 404, "unknown-session"),
    ],
)
async def test_every_mistake_has_its_status_and_code(
    scripted: Make, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    async with serving(scripted) as http:
        response = await http.request(method, path, content=body)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_trouble_of_the_environment_is_a_502_that_says_what(scripted: Make) -> None:
    async with serving(scripted) as http:
        response = await http.post(f"/sessions/{await opened(http)}/step", json={"action": "raise"})
        assert response.status_code == 502
        assert response.json()["error"] == {
            "code": "env-fault",
            "kind": "crashed",
            "message": "scripted: step raised ValueError: told to raise",
        }


async def test_a_full_server_says_when_to_come_back(scripted: Make) -> None:
    async with serving(scripted, max_sessions=1) as http:
        await opened(http)
        response = await http.post("/sessions", json={"task": "train-0", "seed": 0})
        assert (response.status_code, response.json()["error"]["kind"]) == (503, "busy")
        assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize("given_token", [None, "Bearer wrong", "Basic c2VjcmV0", "secret", "Bearer secret2"])
async def test_nothing_but_health_is_told_without_the_token(scripted: Make, given_token: str | None) -> None:
    headers = {"authorization": given_token} if given_token else {}
    async with serving(scripted, token="secret") as http:
        assert (await http.get("/health", headers=headers)).status_code == 200
        for path in ("/schema", "/tasks?split=train"):
            assert (await http.get(path, headers=headers)).status_code == 401
        refused = await http.post("/sessions", json={"task": "train-0", "seed": 0}, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
        assert "error" in (await http.post("/create", json={}, headers=headers)).json()


async def test_the_right_token_opens(scripted: Make) -> None:
    async with serving(scripted, token="secret") as http:
        assert (await http.get("/schema", headers={"authorization": "Bearer secret"})).status_code == 200


async def test_no_web_page_may_ask_a_server_without_a_token(scripted: Make) -> None:
    page = {"origin": "http://127.0.0.1:8000"}
    async with serving(scripted) as http:
        refused = await http.post("/sessions", json={"task": "train-0", "seed": 0}, headers=page)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
        assert (await http.get("/health")).json()["sessions"] == 0
    async with serving(scripted, token="secret") as http:
        known = page | {"authorization": "Bearer secret"}
        assert (await http.get("/tasks", params={"split": "test"}, headers=known)).status_code == 200


HERE, ELSEWHERE = "127.0.0.1:8200", "10.0.0.7:8200"


@pytest.mark.parametrize(
    ("server", "headers", "status"),
    [
        (HERE, [("host", "127.0.0.1:8200")], 200),
        (HERE, [("host", "localhost")], 200),
        (HERE, [("host", "LOCALHOST:9")], 200),
        (HERE, [("host", "127.1.2.3:8200")], 200),
        ("[::1]:8200", [("host", "[::1]:8200")], 200),
        (HERE, [("host", "localhost:8200"), ("origin", "http://localhost:8200")], 200),
        # names that a page's owner may have made to lead here
        (HERE, [("host", "evil.example:8200")], 401),
        (HERE, [("host", "evil.example:8200"), ("origin", "http://evil.example:8200")], 401),
        ("[::1]:8200", [("host", "evil.example")], 401),
        (HERE, [("host", "127.0.0.1.evil.example")], 401),
        (HERE, [("host", "localhost.evil.example")], 401),
        (HERE, [("host", "0.0.0.0:8200")], 401),
        (HERE, [("host", "localhost:8200@evil.example")], 401),
        (HERE, [("host", "")], 401),
        (HERE, [], 401),
        (HERE, [("host", "localhost"), ("host", "evil.example")], 401),
        # pages from elsewhere
        (HERE, [("host", "localhost:8200"), ("origin", "http://localhost:3000")], 401),
        (HERE, [("host", "localhost:8200"), ("origin", "null")], 401),
        (HERE, [("host", "localhost:8200"), ("origin", "https://evil.example")], 401),
        (HERE, [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.example")], 401),
        # where it is reached over a network its name is not known, and no page is its own
        (ELSEWHERE, [("host", "any.name:8200")], 200),
        (ELSEWHERE, [("host", "any.name:8200"), ("origin", "http://any.name:8200")], 401),
    ],
)
async def test_a_name_or_a_page_that_is_not_of_this_machine_is_refused_without_a_token(
    scripted: Make, server: str, headers: list[tuple[str, str]], status: int
) -> None:
    address, _, port = server.rpartition(":")
    for token, expected in ((None, status), ("secret", 200)):
        app, sent = EnvServer(scripted, ServerSettings(token=token)), list[Any]()

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        known = [*headers, ("authorization", "Bearer secret")]
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/schema",
            "query_string": b"",
            "server": (address.strip("[]"), int(port)),
            "headers": [(name.encode(), value.encode()) for name, value in known],
        }
        await app(scope, nothing, send)
        assert sent[0]["status"] == expected
        talked: list[Any] = []

        async def close(message: Any, talked: list[Any] = talked) -> None:
            talked.append(message["type"])

        await app({**scope, "type": "websocket", "path": "/openenv/ws"}, gone, close)
        assert talked == (["websocket.accept"] if expected == 200 else ["websocket.close"])
        await app.stop()


async def nothing() -> dict[str, object]:
    return {"type": "http.request", "body": b""}


async def gone() -> dict[str, object]:
    return {"type": "websocket.disconnect"}


async def test_a_request_broken_off_before_its_body_does_nothing(scripted: Make) -> None:
    app, sent = EnvServer(scripted), list[Any]()

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/create", "headers": [], "query_string": b""}
    await app(scope, receive, send)
    assert b"the request was interrupted" in sent[1]["body"]
    assert len(app.sessions) == 0
    await app.stop()


async def test_an_answer_that_is_no_json_is_trouble_of_the_environment(scripted: Make) -> None:
    def make() -> Env:
        env = scripted()
        env.advice = lambda: object()  # type: ignore[assignment, method-assign]
        return env

    async with serving(make) as http:
        answer = await http.post(f"/sessions/{await opened(http)}/advice", json={})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "env-fault")
        assert "the answer is not JSON" in answer.json()["error"]["message"]


async def test_a_body_over_the_limit_is_refused(scripted: Make) -> None:
    async with serving(scripted, max_body=1000) as http:
        session = await opened(http)
        big = await http.post(f"/sessions/{session}/step", json={"action": "x" * 2000})
        assert (big.status_code, big.json()["error"]["code"]) == (413, "too-large")
        assert (await http.post(f"/sessions/{session}/step", json={"action": "x" * 500})).status_code == 200


async def test_a_body_over_the_limit_is_not_read_to_its_end(scripted: Make) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 10_000:
            sent += 1
            yield b"x" * 100

    async with serving(scripted, max_body=1000) as http:
        assert (await http.post("/sessions", content=endless())).status_code == 413


async def test_a_mistake_of_ours_names_nothing(scripted: Make, caplog: pytest.LogCaptureFixture) -> None:
    app = EnvServer(scripted)
    app.pool.tasks = lambda split: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env") as http:
        response = await http.get("/tasks?split=train")
    await app.stop()
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal")
    assert "division" not in response.text
    assert "ZeroDivisionError" in caplog.text


async def test_half_a_surrogate_pair_goes_there_and_back(scripted: Make) -> None:
    async with serving(scripted) as http:
        path = f"/sessions/{await opened(http)}/step"
        response = await http.post(path, content=b'{"action": "\\ud800"}')
        assert response.json()["observation"]["text"] == "echo \ud800"


async def test_expired_sessions_are_closed_while_the_server_runs(scripted: Make, journal: list[str]) -> None:
    async with serving(scripted, lease_s=0.05) as http:
        session = await opened(http)
        while (await http.get("/health")).json()["sessions"]:
            await asyncio.sleep(0.01)
        assert (await http.delete(f"/sessions/{session}")).status_code == 404


async def test_a_server_that_was_held_up_lets_those_come_first_who_waited_for_it(scripted: Make) -> None:
    now = 0.0
    app = EnvServer(scripted, ServerSettings(lease_s=0.4), clock=lambda: now)
    await app.start()
    await app.sessions.open("train-0", 0)
    await asyncio.sleep(0.05)
    now = 100.0  # while it was to sleep for a tenth of a second
    await asyncio.sleep(0.1)
    assert len(app.sessions) == 1
    await asyncio.sleep(0.15)
    assert len(app.sessions) == 0
    await app.stop()


async def test_threads_that_hang_show_in_the_health(threaded: Make) -> None:
    async with serving(threaded, threads=1, deadlines=Deadlines(step_s=0.05)) as http:
        response = await http.post(f"/sessions/{await opened(http)}/step", json={"action": "sleep 0.3"})
        assert (response.status_code, response.json()["error"]["kind"]) == (504, "deadline")
        assert (await http.get("/health")).json()["status"] == "stuck"
        while (await http.get("/health")).json()["status"] == "stuck":
            await asyncio.sleep(0.01)


PATHS = [
    "/",
    "//",
    "/health",
    "/schema",
    "/tasks",
    "/tasks?split=train",
    "/corpus",
    "/expert",
    "/hindsight",
    "/sessions",
    "/sessions/",
]
PATHS += [f"/sessions/key{rest}" for rest in ("", "/step", "/advice", "/noise")]
PATHS += ["/create", "/reset", "/step", "/close", "/observation", "/observation?id=0", f"/observation?id={10**20}"]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = ["task", "seed", "key", "action", "actions", "number", "id", "data_idx", "x"]
bodies = st.dictionaries(st.sampled_from(NAMES), json_values, max_size=5)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "POST", "DELETE", "PUT", "HEAD"]),
    path=st.sampled_from(PATHS),
    body=bodies | st.just({"task": "train-0", "seed": 0, "key": "key"}) | st.just({"id": 0, "action": "hello"}),
)
def test_no_request_makes_the_server_err(method: str, path: str, body: Mapping[str, Any], scripted: Make) -> None:
    async def ask() -> int:
        async with serving(scripted) as http:
            await http.post("/sessions", json={"task": "train-0", "seed": 0, "key": "key"})
            number = (await http.post("/create", json={})).json()["id"]
            asked = body | {"id": number} if body.get("id") == 0 else body
            return (await http.request(method, path, json=asked)).status_code

    assert asyncio.run(ask()) < 500
