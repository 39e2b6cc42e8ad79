from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from agym.envs.errors import BadRequest, EnvFault, FaultKind, OutOfStep, UnknownSession, UnknownTask
from agym.envs.pool import EnvPool
from agym.envs.protocol import Env, Observation
from agym.envs.serving.sessions import Sessions

Make = Callable[[], Env]


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def table(make: Make, *, limit: int = 8, clock: Clock | None = None) -> AsyncIterator[Sessions]:
    sessions = Sessions(EnvPool(make), limit=limit, lease_s=10, clock=clock or Clock())
    yield sessions
    await sessions.close_all()


async def test_a_step_sent_twice_is_carried_out_once(scripted: Make, journal: list[str]) -> None:
    async with table(scripted) as sessions:
        opened = await sessions.open("train-0", 0)
        first = await sessions.step(opened.session, "hello", 0)
        assert await sessions.step(opened.session, "hello", 0) == first
        await sessions.step(opened.session, "world", 1)
        assert journal == ["reset train-0 0", "hello", "world"]


async def test_a_step_repeated_while_it_runs_waits_for_the_same_answer(threaded: Make, journal: list[str]) -> None:
    async with table(threaded) as sessions:
        opened = await sessions.open("train-0", 0)
        steps = await asyncio.gather(*(sessions.step(opened.session, "sleep 0.1", 0) for _ in range(3)))
        assert steps[0] == steps[1] == steps[2]
        assert journal.count("sleep 0.1") == 1


@pytest.mark.parametrize("number", [-1, 1, 2, 4, 5])
async def test_a_step_out_of_turn_is_refused_and_changes_nothing(
    scripted: Make, journal: list[str], number: int
) -> None:
    async with table(scripted) as sessions:
        opened = await sessions.open("train-0", 0)
        for turn in range(3):
            await sessions.step(opened.session, f"turn {turn}", turn)
        if number == 2:  # the last one answered
            assert (await sessions.step(opened.session, "other", number)).observation.text == "echo turn 2"
        else:
            with pytest.raises(OutOfStep, match="expected step 3"):
                await sessions.step(opened.session, "other", number)
        assert "other" not in journal


async def test_an_opening_sent_twice_opens_one_session(scripted: Make, journal: list[str]) -> None:
    async with table(scripted) as sessions:
        opened = await asyncio.gather(*(sessions.open("train-0", 4, "key") for _ in range(3)))
        assert {one.session for one in opened} == {"key"}
        assert len(sessions) == 1
        assert journal == ["reset train-0 4"]


async def test_a_key_cannot_be_used_for_another_task(scripted: Make) -> None:
    async with table(scripted) as sessions:
        await sessions.open("train-0", 0, "key")
        with pytest.raises(BadRequest):
            await sessions.open("train-1", 0, "key")


async def test_an_opening_that_failed_leaves_nothing_behind(scripted: Make) -> None:
    async with table(scripted) as sessions:
        for task, error in (("no-such", UnknownTask), ("broken", EnvFault)):
            with pytest.raises(error):
                await sessions.open(task, 0, "key")
            assert len(sessions) == 0


async def test_no_more_sessions_than_the_limit(scripted: Make) -> None:
    async with table(scripted, limit=2) as sessions:
        first = await sessions.open("train-0", 0)
        await sessions.open("train-0", 0)
        with pytest.raises(EnvFault, match="all 2 sessions are taken") as caught:
            await sessions.open("train-0", 0)
        assert caught.value.kind is FaultKind.BUSY
        await sessions.close(first.session)
        await sessions.open("train-0", 0)


async def test_a_session_nobody_asks_for_is_closed(scripted: Make) -> None:
    clock = Clock()
    async with table(scripted, clock=clock) as sessions:
        idle, used = await sessions.open("train-0", 0), await sessions.open("train-1", 0)
        clock.now = 9
        await sessions.step(used.session, "hello", 0)
        clock.now = 11
        assert await sessions.expire() == 1
        with pytest.raises(UnknownSession):
            await sessions.step(idle.session, "hello", 0)
        await sessions.step(used.session, "hello", 1)


async def test_a_session_in_the_midst_of_a_call_is_in_use(threaded: Make) -> None:
    clock = Clock()
    async with table(threaded, clock=clock) as sessions:
        opened = await sessions.open("train-0", 0)
        step = asyncio.create_task(sessions.step(opened.session, "sleep 0.1", 0))
        await asyncio.sleep(0.02)
        clock.now = 100
        assert await sessions.expire() == 0
        await step


async def test_a_lease_begins_when_a_call_has_been_answered(threaded: Make) -> None:
    clock = Clock()
    async with table(threaded, clock=clock) as sessions:
        opening = asyncio.create_task(sessions.open("slow 0.1", 0))
        await asyncio.sleep(0.02)
        clock.now = 100
        opened = await opening
        assert await sessions.expire() == 0
        step = asyncio.create_task(sessions.step(opened.session, "sleep 0.1", 0))
        await asyncio.sleep(0.02)
        clock.now = 200
        await step
        clock.now = 209
        assert await sessions.expire() == 0
        clock.now = 211
        assert await sessions.expire() == 1


async def test_a_session_whose_environment_failed_is_over(scripted: Make) -> None:
    async with table(scripted) as sessions:
        opened = await sessions.open("train-0", 0)
        with pytest.raises(EnvFault):
            await sessions.step(opened.session, "raise", 0)
        assert len(sessions) == 0
        with pytest.raises(UnknownSession):
            await sessions.step(opened.session, "hello", 0)


async def test_a_server_on_its_way_out_opens_nothing(scripted: Make, journal: list[str]) -> None:
    async with table(scripted) as sessions:
        opened = await sessions.open("train-0", 0)
        sessions.refuse_new()
        with pytest.raises(EnvFault, match="stopping"):
            await sessions.open("train-1", 0)
        await sessions.step(opened.session, "hello", 0)
    assert journal.count("close") == 2


async def test_a_reset_begins_counting_anew(scripted: Make) -> None:
    async with table(scripted) as sessions:
        opened = await sessions.open("train-0", 0)
        await sessions.step(opened.session, "hello", 0)
        assert (await sessions.reset(opened.session, "train-1", 0)).text == "train-1 begins"
        await sessions.step(opened.session, "hello", 0)


async def test_a_session_asked_for_while_another_expires_stays(threaded: Make) -> None:
    clock, ending = Clock(), asyncio.Event()

    async with table(threaded, clock=clock) as sessions:
        first, second = await sessions.open("train-0", 0), await sessions.open("train-1", 0)
        held = sessions._entries[first.session].held
        assert held is not None
        give_back = held.give_back

        async def slowly() -> None:
            await ending.wait()
            await give_back()

        held.give_back = slowly  # type: ignore[method-assign]
        clock.now = 11
        reaped = asyncio.create_task(sessions.expire())
        await asyncio.sleep(0)
        step = asyncio.create_task(sessions.step(second.session, "sleep 0.1", 0))
        await asyncio.sleep(0.02)
        ending.set()
        assert await reaped == 1
        assert (await step).observation.text == "echo sleep 0.1"
        assert second.session in sessions
        assert first.session not in sessions


async def test_openings_repeated_after_one_that_failed_are_one_session(threaded: Make) -> None:
    made = 0

    def make() -> Env:
        nonlocal made
        made += 1
        env, fails = threaded(), made == 2  # the first only answers what is asked about tasks
        reset = env.reset

        def slowly(task: str, seed: int) -> Observation:
            time.sleep(0.1)
            if fails:
                raise RuntimeError("not yet")
            return reset(task, seed)

        env.reset = slowly  # type: ignore[method-assign]
        return env

    pool = EnvPool(make)
    sessions = Sessions(pool, limit=8, lease_s=10, clock=Clock())
    first, repeat = (asyncio.create_task(sessions.open("train-0", 0, "key")) for _ in range(2))
    with pytest.raises(EnvFault, match="not yet"):
        await first
    again = asyncio.create_task(sessions.open("train-0", 0, "key"))
    assert await repeat == await again
    await sessions.close("key")
    assert (len(sessions), pool._crowd.lent) == (0, 0)
    await sessions.close_all()


async def test_sessions_under_way_end_side_by_side(own_threaded: Make) -> None:
    both, ended = threading.Barrier(2), list[int]()

    def make() -> Env:
        env = own_threaded()
        env.end = lambda: ended.append(both.wait(timeout=30))  # type: ignore[method-assign]
        return env

    async with table(make) as sessions:
        for _ in range(2):
            await sessions.open("train-0", 0)
    assert sorted(ended) == [0, 1]
    assert len(sessions) == 0
