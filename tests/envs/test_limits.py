"""An environment that says too much: a fault that names the limit, wherever the environment is."""

from __future__ import annotations

import asyncio
import base64
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from agym.envs.clients.agentgym import AgentGymEnv
from agym.envs.clients.client import HttpEnv, InlineEnv
from agym.envs.clients.openenv import OpenEnvEnv
from agym.envs.errors import EnvError, EnvFault, FaultKind
from agym.envs.limits import MAX_ANSWER, MAX_LIST, MAX_OBSERVATION, check_first
from agym.envs.protocol import Deadlines, EnvClient, Observation, Runs, Step
from agym.envs.serving.server import EnvServer

from .conftest import Scripted
from .test_openenv import ECHO, Theirs, echoed, listening

QUICK = Deadlines(open_s=5, step_s=5, close_s=1)


class Talker(Scripted):
    """Says as much as it is told to, at the start of a task `test-2` and in its steps."""

    def __init__(self, runs: Runs = Runs.INLINE) -> None:
        super().__init__(runs)

    def reset(self, task: str, seed: int) -> Observation:
        first = super().reset(task, seed)
        return first if task != "test-2" else Observation(text="x" * (MAX_OBSERVATION + 1))

    def step(self, action: str) -> Step:
        super().step("go")
        what, size = action.split()
        if what == "actions":
            return Step(observation=Observation(text="", valid_actions=("x" * 1024,) * (int(size) // 1024)))
        return Step(observation=Observation(text="x" * int(size)))


@pytest.fixture(params=["in process", "in a thread", "http", "openenv", "agentgym"])
def reach(request: pytest.FixtureRequest) -> Callable[[], object]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[EnvClient]:
        if request.param.startswith("in "):
            client: EnvClient = InlineEnv(lambda: Talker(Runs.INLINE if "process" in request.param else Runs.POOL))
            yield client
            await client.close()
            return
        async with listening(EnvServer(Talker)) as url:
            clients: dict[str, Callable[[], EnvClient]] = {
                "http": lambda: HttpEnv(url, deadlines=QUICK),
                "openenv": lambda: OpenEnvEnv(f"{url}/openenv", deadlines=QUICK),
                "agentgym": lambda: AgentGymEnv(url, "textcraft", deadlines=QUICK),
            }
            client = clients[request.param]()
            yield client
            await client.close()

    opened.kind = request.param  # type: ignore[attr-defined]
    return opened


async def test_an_observation_over_the_limit_is_a_fault_that_names_it(reach: Callable[[], object]) -> None:
    tasks = {"agentgym": ("0", "5"), "openenv": ("train/0", "test/2")}.get(reach.kind, ("train-0", "test-2"))  # type: ignore[attr-defined]
    async with reach() as client:  # type: ignore[attr-defined]
        await client.spec()
        session = await client.open(tasks[0], 0)
        assert len((await session.step(f"say {MAX_OBSERVATION}")).observation.text) == MAX_OBSERVATION
        for too_much in (f"say {MAX_OBSERVATION + 1}", f"actions {MAX_OBSERVATION + 1024}"):
            if reach.kind == "agentgym" and too_much.startswith("actions"):  # type: ignore[attr-defined]
                continue  # which it does not tell
            with pytest.raises(EnvFault, match=r"scripted: the .* has 1,04\d,\d{3} characters; at most 1,048,576 are"):
                await session.step(too_much)
            await session.close()
            session = await client.open(tasks[0], 0)
        await session.close()
        with pytest.raises(EnvFault, match="scripted: the observation has 1,048,577 characters"):
            await client.open(tasks[1], 0)


def test_what_is_no_text_is_left_to_whoever_plays() -> None:
    assert check_first(Observation(text=5), "odd").text == 5  # type: ignore[arg-type]


# --- servers of other systems, which keep to no limit ---


@asynccontextmanager
async def sending(head: bytes, pieces: Callable[[], AsyncIterator[bytes]]) -> AsyncIterator[tuple[str, list[int]]]:
    """A server that answers every request with these pieces, and how many bytes of them went out."""
    sent = [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n")
            async for piece in pieces():
                writer.write(piece)
                sent[0] += len(piece)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", sent
    server.close()


async def much() -> AsyncIterator[bytes]:
    for _ in range(64):
        yield b"x" * 1_048_576


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 67108864",
        b"HTTP/1.1 200 OK\r\nserver: x",
        b"HTTP/1.1 500 No\r\nserver: x",
    ],
)
@pytest.mark.parametrize("make", [HttpEnv, lambda url: AgentGymEnv(url, "babyai"), OpenEnvEnv])
async def test_an_answer_over_the_limit_is_not_read_to_its_end(make: Callable[[str], EnvClient], head: bytes) -> None:
    async with sending(head, much) as (url, sent):
        client = make(url)
        with pytest.raises(EnvFault, match=f"longer than {MAX_ANSWER:,} bytes, the most that is accepted") as caught:
            await client.spec()
        assert caught.value.kind is FaultKind.GARBAGE
        assert url in str(caught.value) or "babyai: " in str(caught.value)
        await client.close()
        assert sent[0] < 3 * MAX_ANSWER


async def test_a_list_of_tasks_may_be_longer_and_has_a_limit_too() -> None:
    """A million of them are a legitimate choice of several environments."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 999999999"
    listed = b'{"split":"train","tasks":[' + b'{"id":"seed-999999","difficulty":null},' * 999_999
    listed += b'{"id":"seed-0","difficulty":null}]}'

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1_048_576

    async def once() -> AsyncIterator[bytes]:
        yield listed

    async with sending(b"HTTP/1.1 200 OK\r\ncontent-length: %d" % len(listed), once) as (url, _):
        client = HttpEnv(url)
        fields = await client._calls.get("/tasks", 30, MAX_LIST)
        assert len(fields["tasks"]) == 1_000_000
        await client.close()
    async with sending(head, endless) as (url, sent):
        client = HttpEnv(url)
        for asked in (client.tasks("train"), client.corpus()):
            with pytest.raises(EnvFault, match=f"longer than {MAX_LIST:,} bytes"):
                await asked
        await client.close()
        assert sent[0] < 3 * MAX_LIST


async def test_a_packed_answer_is_never_unpacked() -> None:
    async def packed() -> AsyncIterator[bytes]:
        yield gzip.compress(b"x" * 4 * MAX_ANSWER)

    async with sending(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip", packed) as (url, _):
        client = HttpEnv(url)
        with pytest.raises(EnvFault, match="expected no encoding, got b'gzip'"):
            await client.spec()
        await client.close()


async def test_an_openenv_server_that_packs_a_long_answer_is_given_up() -> None:
    said = echoed("x" * (MAX_ANSWER + 1))  # a few kilobytes on the wire
    async with listening(Theirs(echoed("ready"), said, schema=ECHO)) as url:
        client = OpenEnvEnv(url, deadlines=QUICK)
        session = await client.open("one", 0)
        with pytest.raises(
            EnvFault, match=f"^echo: the answer to a step is longer than {MAX_ANSWER:,} bytes"
        ) as caught:
            await session.step("hello")
        assert caught.value.kind is FaultKind.GARBAGE
        await session.close()
        await client.close()


# --- a user and password in an address ---


@pytest.mark.parametrize(
    ("token", "sent"), [("right", "Bearer right"), (None, "Basic " + base64.b64encode(b"me:pw").decode())]
)
@pytest.mark.parametrize("make", [HttpEnv, lambda url, token: AgentGymEnv(url, "babyai", token=token), OpenEnvEnv])
async def test_a_password_in_an_address_is_never_sent_in_the_place_of_the_token(
    make: Callable[..., EnvClient], token: str | None, sent: str
) -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = make(f"http://me:pw@127.0.0.1:{server.sockets[0].getsockname()[1]}", token=token)
    with pytest.raises(EnvError, match="401"):
        await client.spec()
    if isinstance(client, OpenEnvEnv):
        client._splits = ()
        with pytest.raises(EnvError, match="401"):
            await client.open("one", 0)
    await client.close()
    server.close()
    assert seen
    for head in seen:
        given = [line for line in head.decode().split("\r\n") if line.lower().startswith("authorization:")]
        assert [line.split(": ", 1)[1] for line in given] == [sent]
