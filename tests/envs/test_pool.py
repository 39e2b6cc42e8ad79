from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from agym.envs.errors import EnvFault, EpisodeOver, FaultKind, UnknownTask
from agym.envs.pool import EnvPool
from agym.envs.protocol import Deadlines, Env, EnvSpec, Observation, Runs, Step

Make = Callable[[], Env]


async def test_an_instance_given_back_plays_the_next_episode(scripted: Make, journal: list[str]) -> None:
    pool = EnvPool(scripted)
    for task in ("train-0", "train-1"):
        held = await pool.take()
        await held.reset(task, 0)
        await held.give_back()
    assert journal == ["reset train-0 0", "reset train-1 0"]
    await pool.close()
    assert journal[2:] == ["close", "close"]  # the one that played, and the one that only answers questions


async def test_an_instance_given_back_lets_go_of_its_episode_at_once(own_threaded: Make, journal: list[str]) -> None:
    def make() -> Env:
        env = own_threaded()
        env.end = lambda: journal.append("end")  # type: ignore[method-assign]
        return env

    pool = EnvPool(make)
    held = await pool.take()
    await held.reset("train-0", 0)
    await held.step("hello")
    await held.give_back()
    assert journal == ["reset train-0 0", "hello", "end"]
    await pool.close()


async def test_an_instance_that_cannot_let_go_is_thrown_away(scripted: Make, journal: list[str]) -> None:
    def make() -> Env:
        env = scripted()
        env.end = lambda: env.step("raise")  # type: ignore[assignment]
        return env

    pool = EnvPool(make)
    held = await pool.take()
    await held.reset("train-0", 0)
    await held.give_back()
    assert journal == ["reset train-0 0", "raise", "close"]
    await pool.close()


async def test_an_instance_that_raised_is_closed_and_not_used_again(scripted: Make, journal: list[str]) -> None:
    pool = EnvPool(scripted)
    held = await pool.take()
    await held.reset("train-0", 0)
    with pytest.raises(EnvFault, match="scripted: step raised ValueError: told to raise") as caught:
        await held.step("raise")
    assert caught.value.kind is FaultKind.CRASHED
    await held.give_back()
    assert journal[-1] == "close"
    await pool.close()
    assert journal.count("close") == 2


async def test_a_mistake_of_the_caller_leaves_the_instance_good(scripted: Make, journal: list[str]) -> None:
    pool = EnvPool(scripted)
    held = await pool.take()
    with pytest.raises(UnknownTask):
        await held.reset("no-such", 0)
    with pytest.raises(EpisodeOver):
        await held.step("hello")
    await held.give_back()
    assert "close" not in journal
    await pool.close()


async def test_giving_back_twice_lends_the_instance_once(scripted: Make, journal: list[str]) -> None:
    pool = EnvPool(scripted)
    held = await pool.take()
    await held.give_back()
    await held.give_back()
    one, other = await pool.take(), await pool.take()
    await one.reset("train-0", 0)
    with pytest.raises(EpisodeOver):
        await other.step("hello")
    await one.give_back()
    await other.give_back()
    await pool.close()


async def crowd(pool: EnvPool, size: int) -> None:
    for one in [await pool.take() for _ in range(size)]:
        await one.give_back()


async def test_as_many_instances_are_kept_as_were_lent_at_once(scripted: Make, journal: list[str]) -> None:
    pool = EnvPool(scripted, keep=1)
    await crowd(pool, 3)
    await crowd(pool, 3)
    assert journal == []
    await pool.close()
    assert journal == ["close"] * 4  # with the one that answers what is asked about tasks


async def test_instances_of_a_crowd_that_does_not_come_again_are_let_go(scripted: Make, journal: list[str]) -> None:
    pool = EnvPool(scripted, keep=1)
    await crowd(pool, 3)
    for _ in range(40):
        await crowd(pool, 1)
    assert journal == ["close", "close"]
    await pool.close()


async def test_what_comes_back_after_the_end_is_not_kept(scripted: Make, journal: list[str]) -> None:
    pool = EnvPool(scripted)
    held = await pool.take()
    await pool.close()
    await held.give_back()
    assert journal == ["close"] * 2


async def test_calls_in_threads_do_not_hold_each_other_up(threaded: Make) -> None:
    pool = EnvPool(threaded, threads=4)
    held = [await pool.take() for _ in range(4)]
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(one.reset("train-0", 0) for one in held))
    start = loop.time()
    await asyncio.gather(*(one.step("sleep 0.2") for one in held))
    assert loop.time() - start < 0.6
    for one in held:
        await one.give_back()
    await pool.close()


async def test_a_call_that_hangs_is_named_and_given_up(threaded: Make, journal: list[str]) -> None:
    pool = EnvPool(threaded, deadlines=Deadlines(step_s=0.05))
    held = await pool.take()
    await held.reset("train-0", 0)
    with pytest.raises(EnvFault, match=r"scripted: step did not come back within 0.05 s") as caught:
        await held.step("sleep 0.3")
    assert caught.value.kind is FaultKind.DEADLINE
    assert pool.stuck == 1
    with pytest.raises(EnvFault, match="waits for a call that hangs"):
        await held.step("hello")
    await held.give_back()
    assert "close" not in journal  # it cannot be called while it hangs
    await asyncio.sleep(0.5)
    assert pool.stuck == 0
    assert journal[-1] == "close"
    await pool.close()


async def test_a_call_that_was_cancelled_keeps_its_instance_from_others(threaded: Make) -> None:
    pool = EnvPool(threaded)
    held = await pool.take()
    await held.reset("train-0", 0)
    step = asyncio.create_task(held.step("sleep 0.2"))
    await asyncio.sleep(0.05)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    await held.give_back()
    other = await pool.take()
    with pytest.raises(EpisodeOver):  # a fresh one, not the one that sleeps
        await other.step("hello")
    await other.give_back()
    await asyncio.sleep(0.3)
    await pool.close()


class ThreadTold(Env):
    """Says which thread it was called from."""

    spec = EnvSpec(name="told", version="1", summary="", splits=("train",), runs=Runs.THREAD)

    def tasks(self, split: str) -> tuple[str, ...]:
        return ("t",)

    def reset(self, task: str, seed: int) -> Observation:
        return Observation(text=str(threading.get_ident()))

    def step(self, action: str) -> Step:
        return Step(observation=Observation(text=str(threading.get_ident())))


async def test_an_environment_that_needs_its_own_thread_always_gets_the_same() -> None:
    pool = EnvPool(ThreadTold)
    one, other = await pool.take(), await pool.take()
    threads = [(await held.reset("t", 0)).text for held in (one, other)]
    assert threads[0] != threads[1]
    assert [(await held.step("")).observation.text for held in (one, other)] == threads
    await one.give_back()
    again = await pool.take()
    assert (await again.step("")).observation.text == threads[0]
    await again.give_back()
    await other.give_back()
    await pool.close()


class SlowToEnd(ThreadTold):
    """Ends when another ends at the same time, like a server that takes its time."""

    def __init__(self, others: threading.Barrier, ending: list[int]) -> None:
        self.others, self.ending = others, ending

    def close(self) -> None:
        self.ending.append(1)
        self.most = sum(self.ending)
        self.others.wait(timeout=30)
        self.ending.append(-1)


async def test_instances_end_side_by_side_and_not_all_at_once() -> None:
    ending: list[int] = []
    others, made = threading.Barrier(2), list[SlowToEnd]()

    def make() -> SlowToEnd:
        made.append(SlowToEnd(others, ending))
        return made[-1]

    pool = EnvPool(make)
    await crowd(pool, 40)
    desk, lent = made[0], made[1:]
    assert len(lent) == 40
    desk.close = lambda: None  # type: ignore[method-assign]
    await pool.close()
    assert not others.broken
    assert sum(ending) == 0
    assert 2 <= max(each.most for each in lent) <= 16


async def test_an_environment_that_cannot_be_made_is_a_fault() -> None:
    made: list[Env] = []

    def make() -> Env:
        if made:
            raise OSError("no more")
        made.append(ThreadTold())
        return made[0]

    pool = EnvPool(make)
    with pytest.raises(EnvFault, match="raised OSError: no more"):
        await pool.take()
    await pool.close()


async def test_the_expert_is_asked_on_an_instance_of_its_own(scripted: Make) -> None:
    pool = EnvPool(scripted)
    held = await pool.take()
    await held.reset("train-0", 0)
    assert await pool.expert("train-1", 0) == ("win",)
    assert (await held.step("hello")).observation.text == "echo hello"
    await held.give_back()
    await pool.close()


async def test_an_instance_with_its_own_thread_is_closed_when_its_call_comes_back(
    own_threaded: Make, journal: list[str]
) -> None:
    pool = EnvPool(own_threaded, deadlines=Deadlines(step_s=0.05))
    held = await pool.take()
    await held.reset("train-0", 0)
    with pytest.raises(EnvFault, match="did not come back"):
        await held.step("sleep 0.2")
    await held.give_back()
    await asyncio.sleep(0.4)
    assert journal[-1] == "close"
    await pool.close()


async def test_an_instance_made_too_late_is_closed(journal: list[str]) -> None:
    class Slow(ThreadTold):
        num_made = 0

        def __init__(self) -> None:
            Slow.num_made += 1
            if Slow.num_made > 1:  # the first only answers what is asked about tasks
                time.sleep(0.2)

        def close(self) -> None:
            journal.append("close")

    pool = EnvPool(Slow, deadlines=Deadlines(open_s=0.05))
    with pytest.raises(EnvFault, match="did not come back"):
        await pool.take()
    await asyncio.sleep(0.4)
    assert journal == ["close"]
    await pool.close()


@pytest.mark.parametrize("runs", Runs)
@pytest.mark.parametrize("error", [SystemExit(3), BaseException("panic"), asyncio.CancelledError(), StopIteration()])
async def test_what_would_end_the_process_is_a_fault(runs: Runs, error: BaseException) -> None:
    class Ends(ThreadTold):
        spec = EnvSpec(name="told", version="1", summary="", splits=("train",), runs=runs)

        def step(self, action: str) -> Step:
            raise error

    pool = EnvPool(Ends)
    held = await pool.take()
    await held.reset("t", 0)
    with pytest.raises(EnvFault, match=f"told: step raised {type(error).__name__}"):
        await held.step("")
    await held.give_back()
    assert not pool._idle
    await pool.close()


async def test_a_call_that_has_not_begun_is_not_stuck(threaded: Make) -> None:
    pool = EnvPool(threaded, threads=1, deadlines=Deadlines(step_s=0.1))
    helds = [await pool.take() for _ in range(4)]
    for held in helds:
        await held.reset("train-0", 0)
    steps = [held.step("sleep 0.4" if held is helds[0] else "hello") for held in helds]
    caught = await asyncio.gather(*steps, return_exceptions=True)
    assert [type(each) for each in caught] == [EnvFault] * 4
    assert pool.stuck == 1
    for held in helds:
        await held.give_back()
    await asyncio.sleep(0.5)
    assert pool.stuck == 0
    await pool.close()


async def test_where_each_has_a_thread_a_few_that_hang_keep_nobody_waiting(own_threaded: Make) -> None:
    pool = EnvPool(own_threaded, threads=1, deadlines=Deadlines(step_s=0.05))
    held, other = await pool.take(), await pool.take()
    for each in (held, other):
        await each.reset("train-0", 0)
    with pytest.raises(EnvFault):
        await held.step("sleep 0.3")
    assert (pool.stuck, pool.hangs) == (1, False)
    assert (await other.step("hello")).observation.text == "echo hello"
    for each in (held, other):
        await each.give_back()
    await asyncio.sleep(0.4)
    await pool.close()


async def test_a_question_about_tasks_holds_nobody_up() -> None:
    class Slow(ThreadTold):
        spec = EnvSpec(name="told", version="1", summary="", splits=("train",), runs=Runs.POOL)

        def corpus(self) -> Iterator[str]:
            time.sleep(0.3)
            yield "word"

    pool = EnvPool(Slow)
    held = await pool.take()
    asked = asyncio.create_task(pool.corpus())
    await asyncio.sleep(0.05)
    await held.reset("t", 0)
    await held.step("")
    assert not asked.done()
    assert await asked == ("word",)
    await held.give_back()
    await pool.close()


async def test_no_more_instances_show_solutions_than_there_are_threads(threaded: Make, journal: list[str]) -> None:
    def slow() -> Env:
        env = threaded()
        show = env.expert
        env.expert = lambda *given: (time.sleep(0.02), show(*given))[1]  # type: ignore[method-assign]
        return env

    pool = EnvPool(slow, threads=2)
    await asyncio.gather(*(pool.expert("train-0", 0) for _ in range(20)))
    assert pool._crowd.most == 2
    await pool.close()


async def test_a_call_left_waiting_when_the_pool_closes_is_a_fault(threaded: Make) -> None:
    pool = EnvPool(threaded, threads=1)
    one, other = await pool.take(), await pool.take()
    for held in (one, other):
        await held.reset("train-0", 0)
    steps = [asyncio.create_task(held.step("sleep 0.2")) for held in (one, other)]
    await asyncio.sleep(0.05)
    await pool.close()
    with pytest.raises(EnvFault, match="was not begun"):
        await steps[1]
    await steps[0]
