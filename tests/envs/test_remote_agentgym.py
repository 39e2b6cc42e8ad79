"""Playing on AgentGym servers: ours, and one that is written here on the model of theirs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from agym.envs.clients.agentgym import KINDS, AgentGymEnv
from agym.envs.errors import (
    BadOption,
    BadRequest,
    EnvFault,
    EpisodeOver,
    FaultKind,
    NotFound,
    Unauthorized,
    UnknownSplit,
    UnknownTask,
)
from agym.envs.protocol import Deadlines, Env, Score
from agym.envs.serving.server import EnvServer, ServerSettings

Make = Callable[[], Env]
QUICK = Deadlines(open_s=0.5, step_s=0.5, close_s=0.2)
OURS = ("textcraft", "babyai", "sciworld", "webarena", "searchqa")


@asynccontextmanager
async def ours(make: Make, kind: str, **chosen: Any) -> AsyncIterator[tuple[AgentGymEnv, EnvServer]]:
    app = EnvServer(make, ServerSettings(agentgym=kind, **chosen))
    client = AgentGymEnv("http://env", kind, transport=httpx.ASGITransport(app), deadlines=QUICK)
    yield client, app
    await client.close()
    await app.stop()


@pytest.mark.parametrize("kind", OURS)
async def test_an_episode_on_a_server_of_ours(scripted: Make, journal: list[str], kind: str) -> None:
    async with ours(scripted, kind) as (client, app):
        spec = await client.spec()
        assert (spec.name, spec.splits, spec.score) == (kind, (), Score.LAST)
        assert spec.prompt
        session = await client.open("4", 7)
        assert session.first.text.startswith("test-1 begins") or session.first.text == "\n\ntest-1 begins"
        step = await session.step("hello")
        assert (step.reward, step.ended) == (0.0, False)
        step = await session.step("win")
        assert (step.reward, step.terminated) == (1.0, True)
        with pytest.raises(EpisodeOver):
            await session.step("hello")
        await session.close()
        await session.close()
        with pytest.raises(EpisodeOver, match="closed"):
            await session.step("hello")
        assert await client.expert("4", 0) is None
        assert [word for word in journal if word in ("hello", "win")] == ["hello", "win"]
    assert len(app.sessions) == 0


async def test_an_environment_given_back_is_used_again(scripted: Make) -> None:
    async with ours(scripted, "babyai") as (client, app):
        for task in ("0", "1", "2"):
            session = await client.open(task, 0)
            assert session.first.text.startswith(f"train-{task} begins")
            await session.close()
        assert len(app.sessions) == 1
        both = [await client.open("0", 0), await client.open("1", 0)]
        assert len(app.sessions) == 2
        for session in both:
            await session.close()
    assert len(app.sessions) == 0


async def test_one_that_the_server_has_given_up_meanwhile_is_replaced(scripted: Make) -> None:
    async with ours(scripted, "babyai") as (client, app):
        await (await client.open("0", 0)).close()
        for session in list(app.sessions._entries):
            await app.sessions.close(session)
        session = await client.open("1", 0)
        assert session.first.text.startswith("train-1")
        await session.close()


@pytest.mark.parametrize("kind", OURS)
async def test_after_a_restart_all_that_was_kept_is_given_up(scripted: Make, kind: str) -> None:
    line = Restarting(scripted, kind)
    client = AgentGymEnv("http://env", kind, transport=line, deadlines=QUICK)
    kept = [await client.open(task, 0) for task in "000"]
    for session in kept:
        await session.close()
    line.restart()
    anew = [await client.open(task, 0) for task in "111"]
    assert all("train-1 begins" in session.first.text for session in anew)
    assert len(line.app.sessions) == 3
    assert line.resets == 3 + 1 + 3
    for session in anew:
        assert "echo hello" in (await session.step("hello")).observation.text
        await session.close()
    await client.close()
    assert len(line.app.sessions) == 0


class Restarting(httpx.AsyncBaseTransport):
    """To a server of ours, which can lose all that it knew; counts resets."""

    def __init__(self, make: Make, kind: str) -> None:
        self._make, self._kind = make, kind
        self.resets = 0
        self.restart()

    def restart(self) -> None:
        self.app = EnvServer(self._make, ServerSettings(agentgym=self._kind))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.resets += request.url.path == "/reset"
        return await httpx.ASGITransport(self.app).handle_async_request(request)


async def test_one_that_had_trouble_is_not_used_again(scripted: Make) -> None:
    async with ours(scripted, "textcraft") as (client, app):
        session = await client.open("0", 0)
        with pytest.raises(EnvFault, match="step raised ValueError: told to raise"):
            await session.step("raise")
        await session.close()
        assert len(app.sessions) == 0


async def test_a_token_is_brought(scripted: Make) -> None:
    app = EnvServer(scripted, ServerSettings(token="secret"))
    client = AgentGymEnv("http://env", "textcraft", token="secret", transport=httpx.ASGITransport(app))
    await (await client.open("0", 0)).close()
    await client.close()
    await app.stop()


@pytest.mark.parametrize("task", ["train-0", "-1", "1.0", "", "²", "9" * 30])
async def test_a_task_that_is_no_number_is_refused(scripted: Make, task: str) -> None:
    async with ours(scripted, "textcraft") as (client, _):
        with pytest.raises(UnknownTask):
            await client.open(task, 0)


async def test_there_are_no_lists_of_tasks(scripted: Make) -> None:
    async with ours(scripted, "textcraft") as (client, _):
        with pytest.raises(UnknownSplit, match="by 'ids' or 'file'"):
            await client.tasks("train")


def test_a_kind_that_is_misspelt_is_put_right() -> None:
    with pytest.raises(BadOption, match="did you mean 'babyai'"):
        AgentGymEnv("http://env", "babyay")


# --- a server after theirs -----------------------------------------------------------------------------------------

Said = tuple[int, Any]


class Theirs:
    """Answers `/create`, `/reset` and the others as it is told to, and keeps what it was asked."""

    def __init__(self, **answers: Said | list[Said]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        await asyncio.sleep(0)  # as an answer from afar takes its time
        body = (await receive()).get("body", b"")
        name = scope["path"].strip("/") or "root"
        self.asked.append((name, json.loads(body) if body else scope["query_string"].decode()))
        answer = self.answers.get(name, (404, {"detail": "Not Found"}))
        status, said = answer.pop(0) if isinstance(answer, list) else answer
        text = said if isinstance(said, bytes) else json.dumps(said).encode()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": text})


@asynccontextmanager
async def theirs(kind: str, **answers: Any) -> AsyncIterator[tuple[AgentGymEnv, Theirs]]:
    app = Theirs(**answers)
    client = AgentGymEnv("http://env", kind, transport=httpx.ASGITransport(app), deadlines=QUICK)
    yield client, app
    await client.close()


async def test_a_browser_is_asked_what_it_shows_and_given_actions_as_it_expects_them() -> None:
    async with theirs(
        "webarena",
        create=(200, {"env_idx": 3}),
        reset=(200, {"observation": "[4] RootWebArea", "sites": ["shopping"], "object": "Buy it"}),
        observation=(200, "OBJECTIVE: Buy it\n[4] RootWebArea"),
        step=(
            200,
            {"observation": "[5] Cart", "reward": 0.0, "terminated": False, "truncated": False, "info": {"page": 1}},
        ),
        close=(200, {"closed": "closed"}),
    ) as (client, app):
        session = await client.open("12", 0)
        assert session.first.text == "OBJECTIVE: Buy it\n[4] RootWebArea"
        assert (await session.step("click [4]")).observation.text == "[5] Cart"
        await session.close()
    assert app.asked == [
        ("create", {}),
        ("reset", {"env_idx": 3, "idx": 12, "seed": 0}),
        ("observation", "env_idx=3"),
        ("step", {"env_idx": 3, "action": "```click [4]```"}),
        ("close", {"env_idx": 3}),
    ]


@pytest.mark.parametrize(
    ("action", "sent"),
    [
        ("search who was Ada", "<search>who was Ada</search>"),
        ("Answer Ada", "<answer>Ada</answer>"),
        ("<answer>Ada</answer>", "<answer>Ada</answer>"),
        ("nonsense", "nonsense"),
    ],
)
async def test_a_question_is_searched_and_answered_in_tags(action: str, sent: str) -> None:
    async with theirs(
        "searchqa",
        create=(200, 0),
        reset=(200, "Question: who?"),
        step=(200, {"observation": "Sorry", "reward": 0, "done": False, "info": None}),
        close=(200, True),
    ) as (client, app):
        session = await client.open("5", 0)
        assert session.first.text == "Question: who?"
        await session.step(action)
        await session.close()
    assert app.asked[:3] == [
        ("create", {"id": 0}),
        ("reset", {"env_idx": 0, "id": 5}),
        ("step", {"env_idx": 0, "action": sent}),
    ]


async def test_an_experiment_is_described_before_it_is_seen_and_scored_in_percent() -> None:
    began = {"task_name": "boil", "var_num": 3, "task_description": "Boil water.", "observation": "A kitchen."}
    step = {"observation": "ok", "reward": 8, "score": 33, "done": False}
    async with theirs(
        "sciworld",
        create=(200, {"id": 0}),
        reset=(200, {**began, "reward": 0, "score": 0, "deleted": False, "done": False}),
        step=[(200, step), (200, {**step, "score": -100, "done": True})],
    ) as (client, _):
        session = await client.open("0", 0)
        assert session.first.text == "Boil water.\n\nA kitchen."
        assert (await session.step("wait")).reward == 0.33
        failed = await session.step("focus on door")
        assert (failed.reward, failed.terminated) == (0.0, True)
        await session.close()


@pytest.mark.parametrize("kind", ["webshop", "sqlgym"])
async def test_those_that_call_it_a_state_are_understood(kind: str) -> None:
    async with theirs(
        kind,
        create=(200, 0),
        reset=(200, ["...", None]),
        observation=(200, "What now?"),
        step=(200, {"state": "Found.", "reward": 1.0, "done": True, "info": {}}),
    ) as (client, _):
        session = await client.open("1", 0)
        assert session.first.text == "What now?"
        step = await session.step("search[shoes]")
        assert (step.observation.text, step.reward, step.terminated) == ("Found.", 1.0, True)
        await session.close()


FINE = {"create": (200, {"id": 0}), "reset": (200, {"observation": "go", "reward": 0, "score": 0, "done": False})}


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((200, {"error": "list index out of range"}), FaultKind.CRASHED, "list index out of range"),
        ((500, b"Internal Server Error"), FaultKind.CRASHED, "status 500"),
        ((503, {}), FaultKind.BUSY, "status 503"),
        ((429, b"slow down"), FaultKind.BUSY, "status 429"),
        ((200, b"<html>"), FaultKind.GARBAGE, "makes no sense"),
        ((200, {"observation": "hm"}), FaultKind.GARBAGE, "'score' is missing"),
        ((200, {"observation": 1, "score": 0, "done": False}), FaultKind.GARBAGE, "'observation' must be text"),
        ((200, ["hm"]), FaultKind.GARBAGE, "expected an object"),
    ],
)
async def test_errors_under_any_status_are_faults(answer: Said, kind: FaultKind, said: str) -> None:
    async with theirs("babyai", **FINE, step=answer) as (client, app):
        session = await client.open("0", 0)
        with pytest.raises(EnvFault, match=said) as caught:
            await session.step("go")
        assert caught.value.kind is kind
        await session.close()
        # what is known to the server is not trusted after that
        await (await client.open("0", 0)).close()
        assert [name for name, _ in app.asked].count("create") == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [((422, {"detail": []}), BadRequest), ((401, {}), Unauthorized), ((404, {}), NotFound), ((405, {}), NotFound)],
)
async def test_a_server_of_another_kind_is_a_mistake_that_no_retry_fixes(answer: Said, error: type[Exception]) -> None:
    async with theirs("babyai", create=answer) as (client, _):
        with pytest.raises(error):
            await client.open("0", 0)


async def test_a_number_given_out_twice_is_no_longer_of_use_to_anybody() -> None:
    numbers = [(200, {"id": number}) for number in (0, 1, 0, 1)]
    async with theirs("babyai", **{**FINE, "create": numbers}) as (client, app):
        old, other = await client.open("0", 0), await client.open("0", 0)
        lost, _ = await asyncio.gather(client.open("0", 0), other.close(), return_exceptions=True)
        assert isinstance(lost, EnvFault)
        assert (lost.kind, str(lost)) == (FaultKind.LOST, "the server gave out number 0 twice: it was restarted")
        assert app.asked[-1] == ("close", {"id": 0})
        with pytest.raises(EnvFault, match="number 0 twice") as caught:
            await old.step("go")
        assert caught.value.kind is FaultKind.LOST
        await old.close()
        # nor is what was kept from before
        await (await client.open("0", 0)).close()
        assert app.asked[-2:] == [("create", {}), ("reset", {"id": 1, "data_idx": 0})]


async def test_a_page_that_did_not_load_is_a_fault() -> None:
    failed = {"observation": "TimeoutError", "sites": "Error", "object": "Error"}
    async with theirs("webarena", create=(200, {"env_idx": 0}), reset=(200, failed)) as (client, app):
        with pytest.raises(EnvFault, match="TimeoutError"):
            await client.open("0", 0)
        assert app.asked[-1] == ("close", {"env_idx": 0})


async def test_a_step_whose_answer_was_lost_is_not_sent_again() -> None:
    class Losing(httpx.AsyncBaseTransport):
        steps = 0

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.path == "/step":
                self.steps += 1
                raise httpx.ReadError("reset by peer")
            return httpx.Response(200, json=dict(FINE.get(request.url.path.strip("/"), (0, {}))[1]))

    line = Losing()
    client = AgentGymEnv("http://env", "babyai", transport=line, deadlines=QUICK)
    session = await client.open("0", 0)
    with pytest.raises(EnvFault) as caught:
        await session.step("go")
    assert caught.value.kind is FaultKind.UNREACHABLE
    assert line.steps == 1
    await session.close()
    await client.close()


def test_every_kind_says_how_to_act() -> None:
    assert all(kind.prompt.endswith(".") for kind in KINDS.values())


# --- deadlines -----------------------------------------------------------------------------------------------------


class Hanging(httpx.AsyncBaseTransport):
    """Creates, and resets until it is told to hang; then nothing comes back but what is closed."""

    def __init__(self) -> None:
        self.hangs: tuple[str, ...] = ()
        self.asked: list[str] = []
        self.num_created = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.asked.append(path)
        if path in self.hangs:
            await asyncio.sleep(60)
        if path == "/create":
            self.num_created += 1
            return httpx.Response(200, json={"id": self.num_created})
        return httpx.Response(200, json=FINE["reset"][1])


async def kept(line: Hanging, num: int) -> AgentGymEnv:
    """A client with as many idle environments."""
    deadlines = Deadlines(open_s=0.1, step_s=0.1, close_s=0.05)
    client = AgentGymEnv("http://env", "babyai", transport=line, deadlines=deadlines)
    for session in [await client.open("0", 0) for _ in range(num)]:
        await session.close()
    line.asked.clear()
    return client


async def test_a_deadline_holds_however_many_environments_were_kept() -> None:
    line = Hanging()
    client = await kept(line, 20)
    line.hangs = ("/reset", "/close")
    async with asyncio.timeout(1):
        with pytest.raises(EnvFault, match="no answer to POST /reset") as caught:
            await client.open("0", 0)
    assert caught.value.kind is FaultKind.DEADLINE
    assert line.asked == ["/reset"] + ["/close"] * 20
    await client.close()


async def test_all_requests_of_an_opening_have_one_deadline() -> None:
    class Slow(Hanging):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await asyncio.sleep(0.07)
            return await super().handle_async_request(request)

    client = AgentGymEnv("http://env", "babyai", transport=Slow(), deadlines=Deadlines(open_s=0.1, close_s=0.1))
    with pytest.raises(EnvFault, match="no answer to POST"):
        await client.open("0", 0)
    await client.close()


async def test_to_close_takes_no_longer_the_more_were_kept() -> None:
    line = Hanging()
    client = await kept(line, 20)
    line.hangs = ("/close",)
    async with asyncio.timeout(0.5):
        await client.close()
    assert line.asked == ["/close"] * 20


@pytest.mark.parametrize("num", [0, 1])
async def test_an_opening_that_is_cancelled_ends_its_environment(num: int) -> None:
    line = Hanging()
    client = await kept(line, num)
    line.hangs = ("/reset",)
    opening = asyncio.create_task(client.open("0", 0))
    while "/reset" not in line.asked:
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert line.asked[-2:] == ["/reset", "/close"]
    await client.close()
