"""What goes wrong around a run: it goes on, or ends with one message and a folder to resume. Nothing wrong is trained
on.

Environments are asked over real HTTP, in a process of their own; the engines are small and quick.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.model.recipe import Environment, Transport
from agym.envs.clients.client import HttpEnv
from agym.envs.clients.replicas import Served
from agym.envs.clients.supervise import ServeCommand, ServerProcess, Watch
from agym.envs.errors import EnvFault
from agym.envs.listener import listen
from agym.envs.protocol import Deadlines
from agym.runtime.engine import OutcomeKind
from agym.runtime.errors import RunError, StepRefused
from agym.runtime.interrupts import StopSignal, handle_signals
from agym.runtime.learning.training_batch import build_training_batch, score_groups
from agym.runtime.rollout.env_connections import EnvConnector, OpenEnvs
from agym.runtime.storage.resume_check import can_resume
from agym.runtime.storage.run_folder import JsonLines, on_disk

from .unruly import served

SHORT = ("schedule=[{stage: exploit, turns: 3, until: step >= 2}]", "eval={every: 2, at_start: false, turns: 3}")
COUNTS = ("rollout/fault", "rollout/retries")


def play(run: Any, url: str, patience_s: float = 20.0) -> Any:
    """The run, with its environment behind an address."""

    async def go() -> Any:
        client = HttpEnv(url, deadlines=Deadlines(open_s=patience_s, step_s=patience_s))
        run.clients = {"echo": client}
        try:
            return await run.walk()
        finally:
            run.clients = {}
            await client.close()

    return asyncio.run(go())


def learnt(run: Any) -> list[dict[str, Any]]:
    """All that the rows say except how often something had to be tried."""
    return [{key: row[key] for key in row if not key.startswith(COUNTS)} for row in run.exact()]


def counts(run: Any) -> dict[str, float]:
    found = [(key, value) for row in run.steps() for key, value in row.items() if key.startswith(COUNTS) and value]
    return {key: sum(value for name, value in found if name == key) for key, _ in found}


# --- an environment that misbehaves --------------------------------------------------------------------------------

KINDS = {
    "html": "garbage",
    "an error under status 200": "garbage",
    "a server's error": "garbage",
    "no number": "garbage",
    "an endless number": "garbage",
    "a number too long": "garbage",
    "text for a number": "garbage",
    "half a message": "garbage",
    "a flood": "garbage",
    "silence": "deadline",
    # asked again within the same patience, and carried out once
    "a gateway's error": None,
    "half an answer": None,
}


@pytest.mark.parametrize(("trouble", "kind"), KINDS.items(), ids=KINDS)
def test_an_episode_that_met_trouble_is_played_again_and_is_the_same(
    new_run: Any, echo: Any, trouble: str, kind: str | None
) -> None:
    whole, run = new_run(*SHORT), new_run(*SHORT)
    whole.go()
    with served(echo, {5: trouble}) as url:
        assert play(run, url, 3.0 if trouble == "silence" else 20.0).kind is OutcomeKind.FINISHED
    assert learnt(run) == learnt(whole)
    assert counts(run) == ({f"rollout/fault_{kind}": 1, "rollout/retries": 1} if kind else {})


def test_a_server_that_is_killed_costs_the_episodes_under_way_a_retry(new_run: Any, echo: Any) -> None:
    whole, run = new_run(*SHORT), new_run(*SHORT)
    whole.go()
    with served(echo, {9: "death"}) as url:
        assert play(run, url).kind is OutcomeKind.FINISHED
    assert learnt(run) == learnt(whole)
    assert counts(run).keys() == {"rollout/fault_lost", "rollout/retries"}


def test_an_environment_that_is_slow_is_waited_for(new_run: Any, echo: Any) -> None:
    whole, run = new_run(*SHORT), new_run(*SHORT)
    whole.go()
    with served(echo, {}, slow_s=0.2) as url:
        play(run, url, 5.0)
    assert learnt(run) == learnt(whole)
    assert counts(run) == {}


MESSAGES = {
    "html": "garbage: the answer to /sessions/[0-9a-f]+/step makes no sense: status 200, not JSON: .*It works!",
    "an error under status 200": "garbage: .* makes no sense: answer: 'observation' is missing: .*database is locked",
    "a gateway's error": r"unreachable: POST /sessions/\w+/step: status 502, .*502 Bad Gateway",
    "half an answer": "unreachable: .*the connection was closed before the answer was whole",
    "silence": r"deadline: no answer to POST /sessions/\w+/step within 2 s",
}


PATIENCE_S = {"silence": 2.0, "a gateway's error": 1.0, "half an answer": 1.0}
"""Where it is waited until the end, three times over."""


@pytest.mark.slow
@pytest.mark.parametrize(("trouble", "message"), MESSAGES.items(), ids=MESSAGES)
def test_trouble_that_stays_ends_the_run_with_its_cause_and_a_folder_to_resume(
    new_run: Any, echo: Any, trouble: str, message: str
) -> None:
    whole, run = new_run(*SHORT), new_run(*SHORT)
    whole.go()
    steps = whole.sampler.requests  # more than a step of the run asks for
    first = 25
    with (
        served(echo, dict.fromkeys(range(first, first + 400 * len(steps)), trouble)) as url,
        pytest.raises(
            StepRefused, match=f"rollout: .* lost to failing environments, the last one by {message}.*resume"
        ),
    ):
        play(run, url, PATIENCE_S.get(trouble, 10.0))
    assert run.checkpoints() == [f"step-{len(run.steps())}"]
    assert run.again().go().kind is OutcomeKind.FINISHED
    assert learnt(run) == learnt(whole)


def test_a_lost_episode_is_in_no_baseline_and_its_group_is_trained_on_without_it(new_run: Any, echo: Any) -> None:
    trained_on: list[int] = []
    run = new_run(*SHORT, "rollout.retries=0", "algorithm.filter=size > 0", "eval.at_end=false")
    played: list[Any] = []
    workers = run.workers

    def listening() -> Any:
        made = workers()
        play_groups = made.play

        async def kept(*args: Any) -> Any:
            played.append(await play_groups(*args))
            return played[-1]

        made.play = kept
        return made

    object.__setattr__(run, "workers", listening)
    run.learner.faulty = lambda number, sequences: trained_on.append(len(sequences))
    with served(echo, {5: "html"}) as url:
        play(run, url)
    groups = played[0]
    assert counts(run) == {"rollout/faults": 1, "rollout/fault_garbage": 1}
    (hit,) = [group for group in groups if any(not each.ending.trainable for each in group.episodes)]
    stage = run.plan.stages[0].settings
    with_it, without = (score_groups([each], stage, 0.0, {}, {})[0] for each in (hit, _sound(hit)))
    assert [[each.total for each in group] for group in with_it] == [
        [each.total for each in group] for group in without
    ]
    one, other = (build_training_batch(book, stage, {"step": 0.0}) for book in (with_it, without))
    assert [each.advantages.tolist() for each in one.sequences] == [
        each.advantages.tolist() for each in other.sequences
    ]
    assert sum(trained_on[:2]) == 15


def _sound(group: Any) -> Any:
    return type(group)(task=group.task, episodes=tuple(each for each in group.episodes if each.ending.trainable))


# --- a server of our own -------------------------------------------------------------------------------------------

OURS = Environment(use="counter", transport=Transport.HTTP)


async def until(holds: Callable[[], bool], what: str) -> None:
    for _ in range(600):
        if holds():
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"waited in vain until {what}")


def test_a_server_of_ours_that_dies_is_restarted_reported_and_counted(tmp_path: Path) -> None:
    notes: list[str] = []

    async def go() -> None:
        reach = EnvConnector(tmp_path, {}, notes.append, Deadlines())
        client: Any = await reach("numbers", OURS)
        for life in (1, 2):
            os.killpg(client._server.pid, signal.SIGKILL)
            session = await client.open("reach-7", 0)  # waits for the next one
            await session.close()
            assert reach.num_troubles == life
        await client.close()

    asyncio.run(go())
    assert notes == ["environment 'numbers': server died: the server of 'counter' was killed by SIGKILL"] * 2


@pytest.mark.slow
def test_restarts_are_bounded_for_a_bad_time_and_not_for_the_run(tmp_path: Path) -> None:
    async def go() -> None:
        watch = Watch(max_restarts=1, sound_s=1.0)
        async with ServerProcess(ServeCommand(env="counter"), log=tmp_path / "log", watch=watch) as server:
            client = HttpEnv(server.url)
            for restarts in (1, 2):
                await asyncio.sleep(1.1)
                os.killpg(server.pid or 0, signal.SIGKILL)
                await until(lambda: server.num_restarts == restarts, "it was started again")  # noqa: B023
                await client.spec()
            os.killpg(server.pid or 0, signal.SIGKILL)
            await until(lambda: server.given_up is not None, "it was given up")
            await client.close()

    asyncio.run(go())


def test_the_port_of_a_server_cannot_be_taken_while_it_is_down_nor_a_stranger_be_asked_later(tmp_path: Path) -> None:
    async def go() -> None:
        command = ServeCommand(env="counter")
        async with ServerProcess(command, log=tmp_path / "log", watch=Watch(max_restarts=0)) as server:
            port = int(server.url.rpartition(":")[2])
            client = Served(server)
            with pytest.raises(OSError, match="in use"):
                listen("127.0.0.1", port)
            os.killpg(server.pid or 0, signal.SIGKILL)
            await until(lambda: server.given_up is not None, "it was given up")
            async with ServerProcess(command, log=tmp_path / "other"):
                with listen("127.0.0.1", port):  # anybody's now
                    with pytest.raises(EnvFault, match=r"given up after 0 restarts: .* SIGKILL; its log: .*log"):
                        await client.open("reach-7", 0)
                    with pytest.raises(EnvFault, match="given up"):
                        await client.spec()

    asyncio.run(go())


def test_another_environment_at_the_same_address_is_noticed(echo: Any) -> None:
    class Newer(echo):  # type: ignore[misc]
        spec = type(echo.spec)(name="echo", version="2", summary="say it", splits=("train", "test"))

    async def go() -> None:
        now = [echo]

        class Moved:
            async def spec(self) -> Any:
                return now[0].spec

        async def opened(name: str, settings: object) -> Any:
            return Moved()

        envs = OpenEnvs(opened)
        await envs.get("echo", OURS)
        now[0] = Newer
        with pytest.raises(StepRefused, match="was echo 1 and is now echo 2; restore the first one"):
            await envs.get("echo", OURS)

    asyncio.run(go())


# --- a disk that is full -------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(disk: Path) -> None:
    with (disk / "others").open("ab", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue


@pytest.mark.parametrize(
    ("phase", "keep", "what"),
    [
        ("update", "all", "episodes"),
        ("save", "none", "save"),
    ],
)
def test_full_disk_ends_the_run_with_one_message_and_with_room_again_it_goes_on(
    new_run: Any, small_disk: Path, phase: str, keep: str, what: str
) -> None:
    settings = (*SHORT, f"checkpoint={{every: 1, episodes: {keep}}}")
    whole, run = new_run(*settings), new_run(*settings)
    whole.go()
    run.root = small_disk / "run"

    def look(name: str) -> None:
        if name == phase and len(run.steps()) == 1:
            fill(small_disk)

    run.reporter.phase = look
    with pytest.raises(RunError, match=f"^{what}: .*No space left on device; free space on that disk, and resume$"):
        run.go()
    (small_disk / "others").unlink()
    assert run.again().go().kind is OutcomeKind.FINISHED
    assert learnt(run) == learnt(whole)


def test_a_row_that_finds_no_room_is_an_error_once_and_the_rows_before_it_stay(small_disk: Path) -> None:
    metrics = JsonLines(small_disk / "metrics.jsonl")
    metrics.append({"total_step": 1})
    kept = metrics.size
    fill(small_disk)
    with pytest.raises(OSError, match="No space left on device"):
        metrics.append({"x" * 5000: 2})
    metrics.close()
    (small_disk / "others").unlink()
    again = JsonLines(small_disk / "metrics.jsonl", keep_bytes=kept)
    again.append({"total_step": 2})
    again.close()
    assert (small_disk / "metrics.jsonl").read_text() == '{"total_step": 1}\n{"total_step": 2}\n'


@pytest.mark.parametrize(
    "words",
    [
        "[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534",
        "Error while serializing: I/O error: No space left on device (os error 28)",
    ],
)
def test_what_torch_and_safetensors_say_of_a_full_disk_is_understood(new_run: Any, words: str) -> None:
    run = new_run(*SHORT)

    def full(folder: Path) -> None:
        raise RuntimeError(words)

    run.learner.save = full
    with pytest.raises(RunError, match=r"^save: '.*/checkpoints/step-2': .*free space.*, and resume$"):
        run.go()
    assert run.checkpoints() == []


# --- a learner without memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["update", "logprobs"])
def test_a_learner_out_of_memory_names_the_setting_and_the_run_goes_on_with_more(new_run: Any, call: str) -> None:
    torch = pytest.importorskip("torch")
    whole, run = new_run(*SHORT), new_run(*SHORT)
    whole.go()
    enough = getattr(run.learner, call)

    def look(row: Any) -> None:
        if row["total_step"] == 1:
            setattr(run.learner, call, too_much)

    def too_much(*args: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    run.reporter.row = look
    with pytest.raises(RunError, match=r"the learner is out of memory; .*'hardware\.train\.tokens_per_micro_batch'"):
        run.go()
    setattr(run.learner, call, enough)
    assert len(run.steps()) == 1
    assert run.again().go().kind is OutcomeKind.FINISHED
    assert learnt(run) == learnt(whole)


AT = "environments.echo={url: 'http://127.0.0.1:%s'}"


@pytest.mark.parametrize(
    ("then", "now", "may"),
    [
        ("seed=0", "hardware.train.tokens_per_micro_batch=512", True),
        ("seed=0", "rollout={step_timeout_s: 90, retries: 9, slots: 4}", True),
        ("seed=0", "hardware.rollout.kv_cache_gb=1", True),
        (AT % 8200, AT % 8300, True),
        (AT % 8200, "seed=0", False),
        ("seed=0", "seed=1", False),
        ("seed=0", "algorithm.lr=1", False),
        ("seed=0", "checkpoint.every=3", False),
        ("seed=0", "hardware={train: {zero: 1}, launcher: ray, max_restarts: 1}", True),
        ("seed=0", "hardware.gpus_per_node=1", False),
        ("hardware.gpus_per_node=1", "hardware={gpus_per_node: 8, layout: split}", True),
        ("seed=0", "hardware.staleness=1", False),
    ],
)
def test_a_run_is_resumed_with_what_was_fixed_and_not_with_what_decides_it(
    new_run: Any, then: str, now: str, may: bool
) -> None:
    one, other = (new_run(settings).plan for settings in (then, now))
    assert can_resume(one, other) is may


# --- a file of rows that was cut --------------------------------------------------------------------------------------


def test_rows_that_were_cut_at_any_byte_are_whole_lines_again(tmp_path: Path) -> None:
    whole = b'{"total_step": 1}\n{"total_step": 2}\n'
    for size in range(len(whole) + 1):
        file = tmp_path / "metrics.jsonl"
        file.write_bytes(whole[:size])
        lines = JsonLines(file, keep_bytes=len(whole))
        lines.append({"total_step": 3})
        lines.close()
        kept = [1, 2][: whole[:size].count(b"\n")]
        assert [json.loads(line)["total_step"] for line in file.read_text().splitlines()] == [*kept, 3]
        assert lines.num_lost_bytes == len(whole) - 18 * len(kept)


def test_a_run_whose_rows_were_cut_goes_on_after_the_last_whole_one(new_run: Any) -> None:
    run = new_run(*SHORT)
    run.reporter.phase = lambda name: setattr(run.stop, "wanted", name == "update")
    run.go()
    file = run.root / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-5])
    run.again().go()
    assert [row["total_step"] for row in map(json.loads, file.read_text().splitlines())] == [2, 2]


# --- a folder that is gone ------------------------------------------------------------------------------------------


def test_a_row_is_never_written_into_a_file_that_was_deleted(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "metrics.jsonl")
    lines.append({"total_step": 1})
    (tmp_path / "metrics.jsonl").unlink()
    advice = "the folder was removed while it was in use: put it back, and resume$"
    with pytest.raises(RunError, match=advice), on_disk("metrics"):
        lines.append({"total_step": 2})
    lines.close()


# --- a person who wants to stop ------------------------------------------------------------------------------------


@pytest.fixture
def loud() -> Iterator[None]:
    """An interrupted run silences tracebacks for good, as its process ends; here it goes on."""
    before = sys.unraisablehook, threading.excepthook
    yield
    sys.unraisablehook, threading.excepthook = before
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("loud")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_for_a_save_the_second_ends_a_long_computation_and_the_third_the_process(
    number: signal.Signals,
) -> None:
    stop, notes, codes = StopSignal(), list[str](), list[int]()
    before = signal.getsignal(number)

    async def go() -> None:
        stop.loop = asyncio.get_running_loop()
        os.kill(os.getpid(), number)
        await asyncio.sleep(0.01)
        assert (stop.wanted, stop.ending) == (True, False)
        threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
        time.sleep(30)  # as an update does

    started = time.monotonic()
    with handle_signals(stop, notes.append, exit_now=codes.append, repeated_s=0.0):
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(go())
        assert time.monotonic() - started < 20
        os.kill(os.getpid(), number)
        time.sleep(0.01)
    assert notes == ["finishing this step, then saving; interrupt again to stop now"]
    assert codes == [130]
    assert signal.getsignal(number) is before


def test_a_scheduler_that_sends_its_signal_twice_asks_for_one_save() -> None:
    stop, notes = StopSignal(), list[str]()

    async def go() -> None:
        stop.loop = asyncio.get_running_loop()
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.01)
        assert (stop.wanted, stop.ending) == (True, False)

    with handle_signals(stop, notes.append):
        asyncio.run(go())
    assert len(notes) == 1


@pytest.mark.usefixtures("loud")
def test_before_there_is_anything_to_save_the_first_signal_ends_the_start() -> None:
    def start() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)

    with handle_signals(StopSignal(), print, exit_now=lambda _: None), pytest.raises(KeyboardInterrupt):
        start()


@pytest.mark.usefixtures("loud")
def test_an_interrupt_that_a_library_swallows_still_ends_the_process() -> None:
    codes, over = list[int](), threading.Event()

    def exit_now(code: int) -> None:
        codes.append(code)
        over.set()

    def before_exit() -> None:
        codes.append(0)
        raise OSError("no space")

    swallow_interrupt(before_exit, exit_now, over)
    assert codes == [0, 130]


@pytest.mark.usefixtures("loud")
def test_what_is_done_before_the_process_ends_has_a_limit_too() -> None:
    over, endless = threading.Event(), threading.Event()

    def before_exit() -> None:
        endless.wait(60)

    def exit_now(_: int) -> None:
        over.set()

    swallow_interrupt(before_exit, exit_now, over)
    endless.set()


def swallow_interrupt(before_exit: Callable[[], None], exit_now: Callable[[int], None], over: threading.Event) -> None:
    """Be interrupted and stay; return once `over` says that the process would have ended."""
    with handle_signals(StopSignal(), print, before_exit=before_exit, exit_now=exit_now, closing_s=0.05):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)
        except KeyboardInterrupt:
            pass
        assert over.wait(10)


def test_a_run_that_is_asked_to_stop_finishes_its_step_saves_and_goes_on_as_if_it_had_not(new_run: Any) -> None:
    whole, run = new_run(*SHORT), new_run(*SHORT)
    whole.go()
    run.reporter.phase = lambda name: setattr(run.stop, "wanted", name == "update")
    outcome = run.go()
    assert (outcome.kind, outcome.steps) == (OutcomeKind.INTERRUPTED, 1)
    assert run.checkpoints() == ["step-1"]
    assert run.again().go().kind is OutcomeKind.FINISHED
    assert learnt(run) == learnt(whole)
