"""The OpenEnv dialect, spoken and understood: our server, our client, and a server written here on the model of
theirs."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from agym.envs.clients.openenv import (
    OpenEnvEnv,
    _name_task,
    _one_text,
    _read_observation,
    _read_step,
    _Session,
)
from agym.envs.errors import EnvFault, EpisodeOver, FaultKind, Unauthorized, UnknownSplit
from agym.envs.listener import listen, url_of
from agym.envs.protocol import Deadlines, Env, Score, Status
from agym.envs.serving.server import EnvServer, ServerSettings
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as websocket_server
from websockets.exceptions import ConnectionClosedOK

Make = Callable[[], Env]
QUICK = Deadlines(open_s=5, step_s=2, close_s=1)


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """A server at a real address, as a WebSocket needs one; in a loop of its own."""
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(app, log_level="critical", lifespan="off", ws="websockets-sansio")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=_run, args=(server, listener))
    thread.start()
    while not server.started:
        await asyncio.sleep(0.01)
    yield url_of(listener)
    server.should_exit = True
    await asyncio.to_thread(thread.join)


def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    asyncio.run(server.serve(sockets=[listener]))


async def said(line: ClientConnection, message: object) -> Any:
    await line.send(message if isinstance(message, str | bytes) else json.dumps(message))
    return json.loads(await line.recv())


# --- our server ----------------------------------------------------------------------------------------------------


async def test_a_session_over_a_websocket(scripted: Make, journal: list[str]) -> None:
    app = EnvServer(scripted)
    async with listening(app) as url:
        async with connect(f"ws{url[4:]}/openenv/ws") as line:
            about = {"task_id": "train-1", "seed": 4}
            assert await said(line, {"type": "reset", "data": {"seed": 4}}) == {
                "type": "observation",
                "data": {
                    "observation": {"text": "train-1 begins", "valid_actions": ["win", "cut"], "metadata": about},
                    "reward": None,
                    "done": False,
                    "metadata": about,
                },
            }
            about = {"status": "ok", "truncated": False, "info": {"length": 5}}
            assert await said(line, {"type": "step", "data": {"text": "hello", "metadata": {}}}) == {
                "type": "observation",
                "data": {
                    "observation": {"text": "echo hello", "valid_actions": None, "metadata": about},
                    "reward": 0.0,
                    "done": False,
                    "metadata": about,
                },
            }
            state = await said(line, {"type": "state"})
            assert state == {
                "type": "state",
                "data": {"episode_id": "train-1#4", "step_count": 1, "task_id": "train-1"},
            }
            won = await said(line, {"type": "step", "data": {"text": "win"}})
            assert (won["data"]["reward"], won["data"]["done"]) == (1.0, True)
            again = await said(line, {"type": "reset", "data": {"task_id": "test-0", "episode_id": "mine"}})
            assert again["data"]["observation"]["text"] == "test-0 begins"
            assert (await said(line, {"type": "state"}))["data"]["episode_id"] == "mine"
            await line.send('{"type":"close"}')
            await line.wait_closed()
        while len(app.sessions):
            await asyncio.sleep(0.01)
    assert [word for word in journal if word in ("hello", "win")] == ["hello", "win"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "INVALID_JSON"),
        (b"\xff", "INVALID_JSON"),
        ("[]", "VALIDATION_ERROR"),
        ({"type": "reset", "data": []}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": -1}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"task_id": "no-such"}}, "EXECUTION_ERROR"),
        ({"type": "reset", "data": {"split": "train", "index": 9}}, "EXECUTION_ERROR"),
        ({"type": "reset", "data": {"task_id": "broken"}}, "EXECUTION_ERROR"),
        ({"type": "step", "data": {"text": "before a reset"}}, "EXECUTION_ERROR"),
        ({"type": "step", "data": {"message": "hello"}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"text": "hello", "more": 1}}, "VALIDATION_ERROR"),
        ({"type": "mcp", "data": {}}, "UNKNOWN_TYPE"),
        ({"data": {}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"episode_id": "x" * 2000}}, "VALIDATION_ERROR"),
    ],
)
async def test_a_message_that_cannot_be_followed_is_told_and_the_session_goes_on(
    scripted: Make, message: object, code: str
) -> None:
    app = EnvServer(scripted, ServerSettings(max_body=1000))
    async with listening(app) as url, connect(f"ws{url[4:]}/openenv/ws") as line:
        answer = await said(line, message)
        assert (answer["type"], answer["data"]["code"]) == ("error", code)
        assert (await said(line, {"type": "reset", "data": {}}))["type"] == "observation"


async def test_a_session_ends_with_its_connection(scripted: Make) -> None:
    app = EnvServer(scripted)
    async with listening(app) as url:
        line = await connect(f"ws{url[4:]}/openenv/ws")
        await said(line, {"type": "reset"})
        assert len(app.sessions) == 1
        line.transport.abort()
        while len(app.sessions):
            await asyncio.sleep(0.01)


async def test_http_tells_what_is_known_and_plays_first_steps(scripted: Make) -> None:
    app = EnvServer(scripted)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env/openenv") as http:
        assert (await http.get("/health")).json() == {"status": "healthy"}
        assert (await http.get("/metadata")).json() == {"name": "scripted", "description": "echoes", "version": "1"}
        schema = (await http.get("/schema")).json()
        assert schema["action"]["required"] == ["text"]
        assert (await http.get("/state")).json() == {"episode_id": None, "step_count": 0}
        reset = (await http.post("/reset", json={"seed": 1})).json()
        assert (reset["observation"]["text"], reset["reward"], reset["done"]) == ("train-1 begins", None, False)
        step = (await http.post("/step", json={"action": {"text": "win"}, "timeout_s": 3.0})).json()
        assert (step["observation"]["text"], step["reward"], step["done"]) == ("echo win", 1.0, True)
        assert (await http.get("/list_environments")).json() == ["scripted"]
        assert (await http.get("/scripted/splits")).json()[0] == {"name": "train", "type": "train"}
        tasks = (await http.post("/scripted/tasks", json={"split": "test"})).json()
        assert tasks["tasks"][2] == {"id": "test-2", "index": 2}
        assert (await http.post("/scripted/num_tasks", json={"split": "test"})).json() == {"num_tasks": 3}
        task = await http.post("/scripted/task", json={"split": "test", "index": 1})
        assert task.json() == {"task": {"id": "test-1", "index": 1}}
        for path, body, status in (
            ("/scripted/task", {"split": "test", "index": 3}, 404),
            ("/other/tasks", {"split": "test"}, 404),
            ("/step", {"action": "win"}, 422),
            ("/reset", {"seed": "1"}, 422),
        ):
            refused = await http.post(path, json=body)
            assert (refused.status_code, list(refused.json())) == (status, ["detail"])
    assert len(app.sessions) == 0
    await app.stop()


async def test_the_server_meets_what_openenv_validate_asks_of_it(scripted: Make) -> None:
    """The six criteria of `openenv validate`, in words of our own; bench/peers/openenv.sh runs the tool itself."""
    app = EnvServer(scripted)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env/openenv") as http:
        description = (await http.get("/openapi.json")).json()
        assert re.fullmatch(r"1\.\d+\.\d+", description["info"]["version"])
        assert {"/reset", "/step", "/state"} <= set(description["paths"])
        assert (await http.get("/health")).json()["status"] == "healthy"
        about = (await http.get("/metadata")).json()
        assert isinstance(about["name"], str)
        assert isinstance(about["description"], str)
        schemas = (await http.get("/schema")).json()
        assert all(isinstance(schemas[part], dict) for part in ("action", "observation", "state"))
        answered = await http.post("/mcp", json={})
        assert (answered.status_code, answered.json()["jsonrpc"]) == (200, "2.0")
    await app.stop()


async def test_what_the_description_names_is_there(scripted: Make) -> None:
    app = EnvServer(scripted)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env/openenv") as http:
        paths = (await http.get("/openapi.json")).json()["paths"]
        for path, methods in paths.items():
            for method in methods:
                answered = await http.request(method, path.replace("{id}", "scripted"))
                assert answered.status_code not in (404, 405), path
    await app.stop()


async def called(http: httpx.AsyncClient, method: str, **params: object) -> Any:
    asked = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    answered = (await http.post("/mcp", json=asked)).json()
    assert (answered["jsonrpc"], answered["id"]) == ("2.0", 7)
    return answered


async def test_an_episode_is_played_by_calls_of_a_tool(scripted: Make) -> None:
    app = EnvServer(scripted)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env/openenv") as http:
        (tool,) = (await called(http, "tools/list"))["result"]["tools"]
        assert (tool["name"], tool["inputSchema"]["required"]) == ("act", ["text"])
        begun = (await called(http, "openenv/session/create", task_id="test-1"))["result"]
        assert begun["observation"]["text"] == "test-1 begins"
        session = {"session_id": begun["session_id"]}
        won = await called(http, "tools/call", name="act", arguments={"text": "win"}, **session)
        assert won["result"]["content"] == [{"type": "text", "text": "echo win"}]
        assert (won["result"]["isError"], won["result"]["structuredContent"]["done"]) == (False, True)
        assert (await called(http, "openenv/session/close", **session))["result"]["closed"]
        gone = await called(http, "tools/call", name="act", arguments={"text": "win"}, **session)
        assert "no session" in gone["error"]["message"]
        alone = await called(http, "tools/call", name="act", arguments={"text": "win"})
        assert alone["result"]["structuredContent"]["reward"] == 1.0
    assert len(app.sessions) == 0
    await app.stop()


async def test_an_environments_own_tools_are_listed_and_called() -> None:
    from agym.envs.desk import create as create_desk

    app = EnvServer(lambda: create_desk({}))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env/openenv") as http:
        tools = (await called(http, "tools/list"))["result"]["tools"]
        assert {tool["name"] for tool in tools} == {tool.name for tool in create_desk({}).spec.tools}
        wrong = await called(http, "tools/call", name=tools[0]["name"], arguments={"no_such": 1})
        assert wrong["result"]["isError"]
    await app.stop()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("{", -32600),
        ("[]", -32600),
        ({"jsonrpc": "1.0", "method": "tools/list"}, -32600),
        ({"jsonrpc": "2.0"}, -32600),
        ({"jsonrpc": "2.0", "method": "tools/forget"}, -32601),
        ({"jsonrpc": "2.0", "method": "tools/call", "params": []}, -32602),
        ({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "jump"}}, -32602),
        ({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "act"}}, -32602),
        ({"jsonrpc": "2.0", "method": "openenv/session/create", "params": {"task_id": "no-such"}}, -32602),
        ({"jsonrpc": "2.0", "method": "openenv/session/create", "params": {"task_id": "broken"}}, -32000),
    ],
)
async def test_a_wrong_call_is_answered_by_its_code(scripted: Make, body: object, code: int) -> None:
    app = EnvServer(scripted)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env/openenv") as http:
        sent = body if isinstance(body, str) else json.dumps(body)
        answered = await http.post("/mcp", content=sent)
        assert (answered.status_code, answered.json()["error"]["code"]) == (200, code)
    assert len(app.sessions) == 0
    await app.stop()


async def test_what_a_step_earns_adds_up_to_the_score() -> None:
    from agym.envs.counter import Counter

    app = EnvServer(Counter)
    async with listening(app) as url:
        client = OpenEnvEnv(f"{url}/openenv", deadlines=QUICK)
        session = await client.open("reach-7", 0)
        rewards = [(await session.step(action)).reward for action in Counter().expert("reach-7", 0)]
        assert sum(rewards) == pytest.approx(1.0)
        await session.close()
        await client.close()


# --- our client ----------------------------------------------------------------------------------------------------


async def test_an_episode_on_a_server_of_ours(scripted: Make) -> None:
    app = EnvServer(scripted)
    async with listening(app) as url:
        client = OpenEnvEnv(f"{url}/openenv/", deadlines=QUICK)
        spec = await client.spec()
        assert (spec.name, spec.version, spec.splits, spec.score) == ("scripted", "1", ("train", "test"), Score.SUM)
        assert [task.id for task in await client.tasks("test")] == ["test/0", "test/1", "test/2"]
        session = await client.open("test/2", 3)
        assert session.first.text == "test-2 begins"
        assert session.first.valid_actions == ("win", "cut")
        step = await session.step("hello \ud83d")  # half a surrogate pair
        assert (step.observation.text, step.reward, step.ended) == ("echo hello \ud83d", 0.0, False)
        cut = await session.step("cut")
        assert (cut.terminated, cut.truncated) == (False, True)
        with pytest.raises(EpisodeOver):
            await session.step("hello")
        await session.close()
        await session.close()
        with pytest.raises(EpisodeOver, match="closed"):
            await session.step("hello")
        named = await client.open("train-1", 0)
        assert named.first.text == "train-1 begins"
        await named.close()
        await client.close()


async def test_trouble_on_the_server_is_a_fault(scripted: Make) -> None:
    app = EnvServer(scripted)
    async with listening(app) as url:
        client = OpenEnvEnv(f"{url}/openenv", deadlines=QUICK)
        session = await client.open("train-0", 0)
        with pytest.raises(EnvFault, match="told to raise") as caught:
            await session.step("raise")
        assert caught.value.kind is FaultKind.CRASHED
        await session.close()
        with pytest.raises(EnvFault, match="broken at reset"):
            await client.open("broken", 0)
        await client.close()


async def test_a_full_server_is_waited_for(scripted: Make) -> None:
    app = EnvServer(scripted, ServerSettings(max_sessions=1))
    async with listening(app) as url:
        client = OpenEnvEnv(f"{url}/openenv", deadlines=QUICK)
        first = await client.open("train-0", 0)
        second = asyncio.create_task(client.open("train-1", 0))
        await asyncio.sleep(0.2)
        assert not second.done()
        await first.close()
        await (await second).close()
        await client.close()


def echoed(text: str, reward: float | None = None, done: bool = False) -> dict[str, Any]:
    shown = {"echoed_message": text, "metadata": {}}
    return {"type": "observation", "data": {"observation": shown, "reward": reward, "done": done}}


FULL = {"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "Server at capacity: 1/1 sessions active"}}


class HangingUp:
    """A connection whose server said something and hung up before anything could be sent."""

    def __init__(self, said: object) -> None:
        self._said = [json.dumps(said)]

    async def send(self, message: str) -> None:
        raise ConnectionClosedOK(None, None)

    async def recv(self) -> str:
        if not self._said:
            raise ConnectionClosedOK(None, None)
        return self._said.pop()

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        (FULL, FaultKind.BUSY, "1/1 sessions active"),
        (echoed("not asked for"), FaultKind.LOST, "closed before a reset"),
    ],
)
async def test_what_a_server_said_before_it_hung_up_is_read_though_nothing_could_be_sent(
    said: object, kind: FaultKind, told: str
) -> None:
    session = _Session(HangingUp(said), "echo", "message", QUICK)  # type: ignore[arg-type]
    with pytest.raises(EnvFault, match=told) as caught:
        await session.begin({"seed": 0})
    assert caught.value.kind is kind


async def test_a_server_of_capacity_one_is_waited_for_and_in_the_end_quoted() -> None:
    """As theirs does it: accept, say that it is full, hang up."""
    num_open = 0

    async def serve(line: ServerConnection) -> None:
        nonlocal num_open
        if num_open:
            await line.send(json.dumps(FULL))
            return
        num_open += 1
        try:
            async for _ in line:
                await line.send(json.dumps(echoed("ready")))
        finally:
            num_open -= 1

    async with websocket_server(serve, "127.0.0.1", 0) as server:
        client = OpenEnvEnv(url_of(next(iter(server.sockets))), deadlines=Deadlines(open_s=0.6, close_s=1))
        client._splits, client._action = (), "message"
        first = await client.open("one", 0)
        with pytest.raises(EnvFault, match="reset: Server at capacity: 1/1") as caught:
            await client.open("two", 0)
        assert caught.value.kind is FaultKind.BUSY
        waiting = asyncio.create_task(client.open("two", 0))
        await asyncio.sleep(0.05)
        await first.close()
        await (await waiting).close()
        await client.close()


@pytest.mark.parametrize("token", [None, "wrong"])
async def test_without_the_token_nothing_is_told_nor_played(scripted: Make, token: str | None) -> None:
    app = EnvServer(scripted, ServerSettings(token="right"))
    async with listening(app) as url:
        client = OpenEnvEnv(f"{url}/openenv", token=token, deadlines=QUICK)
        with pytest.raises(Unauthorized):
            await client.spec()
        client._splits = ()
        with pytest.raises(Unauthorized):
            await client.open("train-0", 0)
        await client.close()
        with_it = OpenEnvEnv(f"{url}/openenv", token="right", deadlines=QUICK)
        await (await with_it.open("train-0", 0)).close()
        await with_it.close()


async def test_a_server_that_is_not_there_is_a_fault() -> None:
    with listen("127.0.0.1", 0) as listener:
        url = url_of(listener)
    client = OpenEnvEnv(url, deadlines=Deadlines(open_s=0.5))
    with pytest.raises(EnvFault) as caught:
        await client.spec()
    assert caught.value.kind is FaultKind.UNREACHABLE
    client._splits = ()
    with pytest.raises(EnvFault) as caught:
        await client.open("a", 0)
    assert caught.value.kind is FaultKind.UNREACHABLE
    await client.close()


async def test_the_password_of_an_address_is_not_told() -> None:
    with listen("127.0.0.1", 0) as listener:
        url = url_of(listener)
    client = OpenEnvEnv(url.replace("//", "//user:pa55word@"), deadlines=Deadlines(open_s=0.3))
    client._splits = ()
    with pytest.raises(EnvFault, match=f"^ws{url[4:]}/ws: ") as caught:
        await client.open("a", 0)
    assert "pa55word" not in str(caught.value)
    await client.close()


# --- a server after theirs: an echo, without tasks -----------------------------------------------------------------

ECHO = {
    "action": {
        "type": "object",
        "properties": {"metadata": {"type": "object"}, "message": {"type": "string", "minLength": 1}},
        "required": ["message"],
    },
    "observation": {"type": "object", "properties": {"echoed_message": {"type": "string"}}},
    "state": {"type": "object"},
}


class Theirs:
    """One answer after another; `silent` gives none, `gone` closes the connection."""

    def __init__(self, *answers: object, schema: object = ECHO) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.http = {"/metadata": {"name": "echo", "description": "says it again"}, "/schema": schema}

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        await receive()
        if scope["type"] == "http":
            found = self.http.get(scope["path"])
            body = json.dumps(found or {"detail": "Not Found"}).encode()
            await send({"type": "http.response.start", "status": 200 if found else 404, "headers": []})
            await send({"type": "http.response.body", "body": body})
            return
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            self.asked.append(json.loads(message["text"]))
            answer = self.answers.pop(0) if self.answers else "gone"
            if answer == "gone":
                await send({"type": "websocket.close", "code": 1011})
                return
            if answer != "silent":
                await send({"type": "websocket.send", "text": json.dumps(answer)})


async def test_an_echo_after_theirs_is_played() -> None:
    app = Theirs(echoed("ready"), echoed("hello", 0.5), echoed("bye", 1.0, True))
    async with listening(app) as url:
        client = OpenEnvEnv(url, deadlines=QUICK)
        spec = await client.spec()
        assert (spec.name, spec.version, spec.splits, spec.prompt) == ("echo", "", (), "")
        with pytest.raises(UnknownSplit, match="by 'ids'"):
            await client.tasks("train")
        session = await client.open("one", 2)
        assert session.first.text == "ready"
        assert (await session.step("hello")).reward == 0.5
        assert (await session.step("bye")).terminated
        await session.close()
        await client.close()
    assert app.asked == [
        {"type": "reset", "data": {"seed": 2, "episode_id": "one", "task_id": "one"}},
        {"type": "step", "data": {"message": "hello"}},
        {"type": "step", "data": {"message": "bye"}},
        {"type": "close"},
    ]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"type": "error", "data": {"message": "no", "code": "EXECUTION_ERROR"}}, FaultKind.CRASHED),
        ({"type": "observation"}, FaultKind.CRASHED),
        ({"type": "observation", "data": {"observation": {"text": "x"}}}, FaultKind.GARBAGE),
        ({"type": "observation", "data": {"observation": 5, "done": False}}, FaultKind.GARBAGE),
        ({"type": "observation", "data": {"observation": {}, "done": False, "reward": "1"}}, FaultKind.GARBAGE),
        ("gone", FaultKind.LOST),
        ("silent", FaultKind.DEADLINE),
    ],
)
async def test_an_answer_that_is_none_is_a_fault_and_the_end_of_the_session(answer: object, kind: FaultKind) -> None:
    async with listening(Theirs(echoed("ready"), answer)) as url:
        client = OpenEnvEnv(url, deadlines=Deadlines(open_s=5, step_s=0.5, close_s=1))
        session = await client.open("one", 0)
        with pytest.raises(EnvFault) as caught:
            await session.step("hello")
        assert caught.value.kind is kind
        with pytest.raises(EpisodeOver):
            await session.step("hello")
        await session.close()
        await client.close()


async def test_an_action_that_the_server_calls_malformed_is_invalid_and_the_session_goes_on() -> None:
    malformed = {"type": "error", "data": {"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": []}}
    async with listening(Theirs(echoed("ready"), malformed, echoed("hello", 0.5))) as url:
        client = OpenEnvEnv(url, deadlines=QUICK)
        session = await client.open("one", 0)
        step = await session.step("")
        assert (step.status, step.observation.text, step.ended) == (Status.INVALID, "Invalid message", False)
        assert (await session.step("hello")).reward == 0.5
        await session.close()
        await client.close()


def answering(answers: dict[str, object], deadlines: Deadlines = QUICK) -> OpenEnvEnv:
    """A client of a server with these answers over HTTP; a number is a status."""

    def answer(request: httpx.Request) -> httpx.Response:
        said = answers.get(request.url.path, 404)
        return httpx.Response(said) if isinstance(said, int) else httpx.Response(200, content=json.dumps(said))

    return OpenEnvEnv("http://env", transport=httpx.MockTransport(answer), deadlines=deadlines)


@pytest.mark.parametrize(
    "odd",
    [
        {"/metadata": []},
        {"/metadata": {"name": "x", "version": 1}},
        {"/schema": []},
        {"/schema": {"action": []}},
    ],
)
async def test_an_odd_description_is_a_fault(odd: dict[str, object]) -> None:
    client = answering({"/metadata": {"name": "x"}, "/schema": ECHO, **odd})
    with pytest.raises(EnvFault, match="makes no sense") as caught:
        await client.spec()
    assert caught.value.kind is FaultKind.GARBAGE
    await client.close()


@pytest.mark.parametrize("odd", [None, "echo", {"echo": 1}, [5], ["\n"], ["\ud83d"]])
async def test_an_odd_list_of_environments_is_a_fault(odd: object) -> None:
    client = answering({"/metadata": {"name": "x"}, "/schema": ECHO, "/list_environments": odd})
    assert (await client.spec()).splits == ()
    with pytest.raises(EnvFault, match="makes no sense"):
        await client.tasks("train")
    await client.close()


async def test_a_server_that_lists_no_environment_lists_no_tasks() -> None:
    client = answering({"/list_environments": []})
    with pytest.raises(UnknownSplit, match="by 'ids'"):
        await client.tasks("train")
    await client.close()


@pytest.mark.parametrize("status", [408, 425, 429])
async def test_a_server_that_asks_for_patience_is_busy(status: int) -> None:
    client = answering({"/metadata": status}, Deadlines(open_s=0.1))
    with pytest.raises(EnvFault, match=f"status {status}") as caught:
        await client.spec()
    assert caught.value.kind is FaultKind.BUSY
    await client.close()


@pytest.mark.parametrize(("said", "reward"), [(True, 1.0), (False, 0.0), (2, 2.0), (0.5, 0.5), (None, 0.0)])
def test_a_reward_is_a_number_or_true_or_false_or_nothing(said: object, reward: float) -> None:
    step = _read_step({"observation": {"text": "x"}, "done": False, "reward": said, "metadata": {"status": []}})
    assert (step.reward, type(step.reward), step.status) == (reward, float, Status.OK)


async def test_an_action_of_several_parts_is_json() -> None:
    several = {"properties": {"tool": {"type": "string"}, "count": {"type": "integer"}}, "required": ["tool", "count"]}
    app = Theirs(echoed("ready"), echoed("done"), schema={**ECHO, "action": several})
    async with listening(app) as url:
        client = OpenEnvEnv(url, deadlines=QUICK)
        assert (await client.spec()).prompt.startswith('Each action is a JSON object: {"')
        session = await client.open("one", 0)
        assert (await session.step("press the button")).status is Status.INVALID
        await session.step('{"tool": "button", "count": 2}')
        await session.close()
        await client.close()
    assert app.asked[1] == {"type": "step", "data": {"tool": "button", "count": 2}}


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (ECHO["action"], "message"),
        ({"properties": {"code": {"type": "string"}}}, "code"),
        ({"properties": {"code": {"type": "string"}, "timeout": {"type": "number"}}, "required": ["code"]}, "code"),
        ({"properties": {"x": {"type": "integer"}}, "required": ["x"]}, None),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}, None),
        ({"properties": {"code": {"type": "string"}}, "required": None}, "code"),
        ({}, None),
        (None, None),
    ],
)
def test_the_one_text_of_an_action_is_found(schema: object, name: str | None) -> None:
    assert _one_text(schema) == name


def test_what_holds_more_than_a_text_is_shown_as_json() -> None:
    seen = {"stdout": "4", "stderr": "", "exit_code": 0, "metadata": {}}
    assert _read_observation({"observation": seen}).text == '{"stdout":"4","stderr":"","exit_code":0}'


@pytest.mark.parametrize(
    ("task", "sent"),
    [
        ("test/12", {"split": "test", "index": 12}),
        ("small/oak-door", {"task_id": "small/oak-door"}),
        ("/3", {"task_id": "/3"}),
        ("7", {"task_id": "7"}),
    ],
)
def test_a_task_is_a_place_in_a_split_or_a_name(task: str, sent: dict[str, object]) -> None:
    assert _name_task(task) == sent
