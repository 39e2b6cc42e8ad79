from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import httpx
import pytest
from agym.envs.clients.client import HttpEnv, InlineEnv
from agym.envs.errors import (
    BadOption,
    EnvFault,
    EpisodeOver,
    FaultKind,
    ProtocolMismatch,
    Unauthorized,
    UnknownSplit,
    UnknownTask,
)
from agym.envs.protocol import Deadlines, Env, EnvClient
from agym.envs.serving.server import EnvServer, ServerSettings

Make = Callable[[], Env]
QUICK = Deadlines(open_s=0.3, step_s=0.3, close_s=0.1)


class Line(httpx.AsyncBaseTransport):
    """The way to a server, with the troubles it is told to have: `None` lets a request through."""

    def __init__(self, app: EnvServer, troubles: Iterable[str | None] = ()) -> None:
        self._to_app = httpx.ASGITransport(app)
        self._troubles = iter(troubles)
        self.num_requests = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.num_requests += 1
        trouble = next(self._troubles, None)
        if trouble == "refused":
            raise httpx.ConnectError("connection refused")
        if trouble == "silent":
            await asyncio.sleep(60)
        if trouble is not None and trouble.startswith("says "):
            return httpx.Response(200, content=trouble.removeprefix("says "))
        response = await self._to_app.handle_async_request(request)
        if trouble == "answer lost":
            raise httpx.ReadError("connection reset")
        return response


@asynccontextmanager
async def reached(
    make: Make, troubles: Iterable[str | None] = (), deadlines: Deadlines = QUICK, **chosen: object
) -> AsyncIterator[tuple[HttpEnv, Line, EnvServer]]:
    app = EnvServer(make, ServerSettings(**chosen))  # type: ignore[arg-type]
    line = Line(app, troubles)
    client = HttpEnv("http://env", transport=line, deadlines=deadlines)
    yield client, line, app
    await client.close()
    await app.stop()


async def play(client: EnvClient) -> list[object]:
    """One episode, as seen through a client."""
    session = await client.open("train-0", 3)
    seen: list[object] = [await client.spec(), await client.tasks("train"), await client.corpus()]
    seen += [await client.expert("train-0", 0), session.first]
    seen += [await client.hindsight("train-0", 0, actions) for actions in ([], ["hello", "win"])]
    seen += [await session.advice(), await session.noise_action(5), await session.step("hello")]
    seen += [await session.step("win"), await session.advice()]
    await session.close()
    return seen


async def test_near_and_far_see_the_same(scripted: Make) -> None:
    inline = InlineEnv(scripted)
    async with reached(scripted) as (far, _, _):
        assert await play(inline) == await play(far)
    await inline.close()


async def test_an_episode_longer_than_a_request_has_reached_nothing_that_can_be_told(scripted: Make) -> None:
    async with reached(scripted, max_body=200) as (far, _, _):
        assert await far.hindsight("train-0", 0, ["hello" * 50, "win"]) == ()


@pytest.mark.parametrize("far", [True, False])
async def test_mistakes_are_the_same_near_and_far(scripted: Make, far: bool) -> None:
    async with reached(scripted) as (http, _, _):
        inline = InlineEnv(scripted)
        client: EnvClient = http if far else inline
        with pytest.raises(UnknownTask):
            await client.open("no-such", 0)
        with pytest.raises(UnknownSplit):
            await client.tasks("no-such")
        with pytest.raises(EnvFault, match="broken at reset"):
            await client.open("broken", 0)
        session = await client.open("train-0", 0)
        await session.step("win")
        with pytest.raises(EpisodeOver):
            await session.step("hello")
        await session.close()
        await session.close()
        with pytest.raises(EpisodeOver, match="closed"):
            await session.step("hello")
        await inline.close()


async def test_a_step_whose_answer_was_lost_is_asked_for_again_and_done_once(
    scripted: Make, journal: list[str]
) -> None:
    troubles = [None, "answer lost", "refused", "answer lost"]
    async with reached(scripted, troubles, Deadlines()) as (client, line, _):
        session = await client.open("train-0", 0)
        assert (await session.step("hello")).observation.text == "echo hello"
        assert line.num_requests == 5
        await session.step("world")
        await session.close()
    assert [entry for entry in journal if entry != "close"] == ["reset train-0 0", "hello", "world"]


async def test_an_opening_whose_answer_was_lost_opens_one_session(scripted: Make, journal: list[str]) -> None:
    async with reached(scripted, ["answer lost"]) as (client, _, app):
        session = await client.open("train-0", 0)
        assert len(app.sessions) == 1
        await session.close()
        assert len(app.sessions) == 0
    assert journal.count("reset train-0 0") == 1


async def test_a_server_that_cannot_be_reached_is_named_when_the_deadline_comes(scripted: Make) -> None:
    async with reached(scripted, ["refused"] * 100) as (client, _, _):
        with pytest.raises(EnvFault, match="ConnectError: connection refused") as caught:
            await client.spec()
        assert caught.value.kind is FaultKind.UNREACHABLE


async def test_a_server_that_does_not_answer_is_named_when_the_deadline_comes(scripted: Make) -> None:
    async with reached(scripted, [None, "silent"]) as (client, _, _):
        session = await client.open("train-0", 0)
        with pytest.raises(EnvFault, match=r"no answer to POST /sessions/\w+/step within 0.3 s") as caught:
            await session.step("hello")
        assert caught.value.kind is FaultKind.DEADLINE
        await session.close()


@pytest.mark.parametrize(
    "answer",
    [
        "<html>502 Bad Gateway</html>",
        "[]",
        "{}",
        '{"reward": 1}',
        '{"session": "s", "observation": {"text": 1, "valid_actions": null}}',
        '{"session": "s", "observation": {"text": "", "valid_actions": null}, "more": 1}',
    ],
)
async def test_an_answer_that_makes_no_sense_is_a_fault(scripted: Make, answer: str) -> None:
    async with reached(scripted, [f"says {answer}"]) as (client, line, _):
        with pytest.raises(EnvFault, match="the answer to /sessions makes no sense") as caught:
            await client.open("train-0", 0)
        assert caught.value.kind is FaultKind.GARBAGE
        assert line.num_requests == 2  # not asked again, but closed in case it was opened


async def test_an_opening_given_up_does_not_leave_a_session_behind(threaded: Make) -> None:
    deadlines = Deadlines(open_s=0.1, close_s=5)
    async with reached(threaded, deadlines=deadlines) as (client, _, app):
        with pytest.raises(EnvFault, match=r"within 0\.1 s"):
            await client.open("slow 0.3", 0)
        assert len(app.sessions) == 0


async def test_a_session_lost_in_a_restart_is_a_fault(scripted: Make) -> None:
    async with reached(scripted) as (client, _, app):
        session = await client.open("train-0", 0)
        await app.sessions.close_all()
        with pytest.raises(EnvFault, match="no session") as caught:
            await session.step("hello")
        assert caught.value.kind is FaultKind.LOST


async def test_a_full_server_is_waited_for(scripted: Make) -> None:
    async with reached(scripted, max_sessions=1, deadlines=Deadlines(open_s=5)) as (client, _, _):
        first = await client.open("train-0", 0)
        second = asyncio.create_task(client.open("train-1", 0))
        await asyncio.sleep(0.1)
        assert not second.done()
        await first.close()
        await (await second).close()


async def test_a_server_that_stays_full_is_a_fault(scripted: Make) -> None:
    async with reached(scripted, max_sessions=1) as (client, _, _):
        await client.open("train-0", 0)
        with pytest.raises(EnvFault, match="all 1 sessions are taken") as caught:
            await client.open("train-1", 0)
        assert caught.value.kind is FaultKind.BUSY


async def test_a_wrong_token_is_no_fault_but_a_mistake(scripted: Make) -> None:
    app = EnvServer(scripted, ServerSettings(token="right"))
    for token, allowed in (("right", True), ("wrong", False), (None, False)):
        client = HttpEnv("http://env", token=token, transport=httpx.ASGITransport(app))
        if allowed:
            await client.spec()
        else:
            with pytest.raises(Unauthorized):
                await client.spec()
        await client.close()
    await app.stop()


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://127.0.0.1:99999", "http://a..b", "https://a..b", "127.0.0.1:8200", "ftp://a", "http://:1"],
)
def test_an_address_that_is_none_is_refused_and_a_password_in_it_not_told(url: str) -> None:
    with pytest.raises(BadOption, match="expected an address such as"):
        HttpEnv(url)
    with pytest.raises(BadOption) as caught:
        HttpEnv(url.replace("//", "//user:pa55word@"))
    assert "pa55" not in str(caught.value)


@pytest.mark.parametrize("token", ["gehe\u00efm", "two\nlines"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_told(token: str) -> None:
    with pytest.raises(BadOption, match=r"^expected a token of printable ASCII only$"):
        HttpEnv("http://env", token=token)


async def test_another_protocol_is_named(scripted: Make) -> None:
    async with reached(scripted, ["says " + json.dumps({"protocol": 99, "spec": {}})]) as (client, _, _):
        with pytest.raises(ProtocolMismatch, match="protocol 99, this client 1"):
            await client.spec()


async def test_an_inline_call_that_hangs_is_given_up(threaded: Make) -> None:
    client = InlineEnv(threaded, deadlines=Deadlines(step_s=0.05))
    session = await client.open("train-0", 0)
    with pytest.raises(EnvFault, match="did not come back"):
        await session.step("sleep 0.2")
    await session.close()
    await asyncio.sleep(0.3)
    await client.close()


async def test_inline_sessions_share_no_instance(scripted: Make) -> None:
    client = InlineEnv(scripted)
    one, other = await client.open("train-0", 0), await client.open("train-1", 0)
    await one.step("win")
    assert (await other.step("hello")).observation.text == "echo hello"
    for session in (one, other):
        await session.close()
    await client.close()
