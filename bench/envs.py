"""Claim: an environment over HTTP costs little: TextCraft takes at least 1500 steps a second of a server's core.

A server as a user starts it, and a player in another process that speaks the native dialect as a run does. At 1, 32 and
256 sessions at the same time (1000 for light environments), expert episodes are played for some seconds, and measured
from outside: steps and episodes per second, by wall clock and by the server's own processor time, latencies of a step,
and the memory that each session adds. The same episodes are also played in one process, without HTTP: the difference is
the protocol's. With `--soak N` N episodes are played, every tenth abandoned without being closed, and memory, sessions,
threads, processes, open files and temporary files are counted on the way and compared; for light environments, as many
sessions as there may be at the same time are opened and closed first.

    python bench/envs.py [NAME ...] [--options JSON] [--workers N] [--seconds 8] [--soak N] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from statistics import quantiles

from agym.catalog import catalog
from agym.envs.clients.client import HttpEnv, InlineEnv
from agym.envs.protocol import Deadlines, EnvClient
from agym.envs.registry import factory

CROWDS = (1, 32, 256)
LARGEST = 1000
"""For light environments."""
LEASE_S = 10.0
"""Of a soak's sessions, so that abandoned ones are gone soon."""
GONE_S = 1.5 * LEASE_S
"""After which nothing is left of an abandoned session."""
BROKEN_OFF = 10
PLAYERS = 16
"""Of a soak, at the same time."""
MOST = 128
"""Sessions of a soak at the same time, including abandoned ones that are yet to expire."""
FLOOR = 1500
TICKS = os.sysconf("SC_CLK_TCK")
PATIENT = Deadlines(open_s=900.0, step_s=900.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env", nargs="*", default=["textcraft"])
    parser.add_argument("--options", default="{}", help="as JSON, of the one environment that is named")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=8.0, help="of play at each number of sessions")
    parser.add_argument("--soak", type=int, metavar="N", help="episodes, in place of the table")
    parser.add_argument("--quick", action="store_true", help="one second at 1 and 32 sessions, or 200 episodes")
    arguments = parser.parse_args()
    measure = soaked if arguments.soak else loaded
    return max([asyncio.run(measure(name, arguments)) for name in arguments.env])


# --- the server, from outside ---


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    pid: int
    folder: Path
    """Where its temporary files lie."""

    @property
    def tree(self) -> list[int]:
        return tree(self.pid)

    @property
    def cpu_s(self) -> float:
        return sum(map(_cpu_s, self.tree))

    @property
    def memory(self) -> int:
        """Bytes, with what is shared counted once."""
        return sum(_kib(pid, "smaps_rollup", "Pss:") for pid in self.tree) * 1024

    @property
    def threads(self) -> int:
        return sum(_kib(pid, "status", "Threads:") for pid in self.tree)

    @property
    def files(self) -> int:
        return sum(_num_files(pid) for pid in self.tree)

    @property
    def left(self) -> int:
        """Number of temporary files and folders."""
        return sum(len(folders) + len(files) for _, folders, files in os.walk(self.folder))


def tree(root: int) -> list[int]:
    """A process and all that it started."""
    found = [root]
    for pid in found:
        # each thread has its own
        for file in Path("/proc").glob(f"{pid}/task/*/children"):
            with suppress(OSError):
                found += map(int, file.read_text().split())
    return found


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS  # its own, and that of children that have ended


def _num_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _kib(pid: int, file: str, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


@asynccontextmanager
async def served(name: str, arguments: argparse.Namespace, *words: str) -> AsyncIterator[Server]:
    limits = ("--max-sessions", "100000", "--workers", str(arguments.workers), "--options", arguments.options)
    # by its leash it ends with this process, however that ends
    argv = [sys.executable, "-m", "agym", "envs", "serve", name, "--port", "0", "--leash", *limits, *words]
    with tempfile.TemporaryDirectory(prefix="agym-bench-") as folder:
        environ = {**os.environ, "TMPDIR": folder}
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
            assert process.stdout is not None
            try:
                yield Server(json.loads(process.stdout.readline())["url"], process.pid, Path(folder))
            finally:
                process.terminate()
                process.wait(60)


# --- playing ---


@dataclass(slots=True)
class Played:
    latencies: list[float] = field(default_factory=list)
    episodes: int = 0


@dataclass(frozen=True, slots=True)
class Game:
    """An episode that is known to be solved."""

    task: str
    actions: tuple[str, ...]


async def games(client: EnvClient, name: str) -> Sequence[Game]:
    """Those with a solution, spread over the first split; where none has one, ten empty actions each."""
    wanted = 64 if catalog().environments[name].light else 16
    tasks = await client.tasks((await client.spec()).splits[0])
    chosen = tasks[:: max(1, len(tasks) // wanted)][:wanted]
    shown = [Game(task.id, actions) for task in chosen if (actions := await client.expert(task.id, 0))]
    return shown or [Game(task.id, ("",) * 10) for task in chosen]


async def crowd(client: EnvClient, known: Sequence[Game], sessions: int, until: float) -> Played:
    played = Played()
    await asyncio.gather(*(play(client, _from(known, number), until, played) for number in range(sessions)))
    return played


def _from(known: Sequence[Game], number: int) -> Iterator[Game]:
    while True:
        yield known[number % len(known)]
        number += 1


async def play(client: EnvClient, following: Iterator[Game], until: float, played: Played) -> None:
    while time.perf_counter() < until:
        game = next(following)
        session = await client.open(game.task, 0)
        for action in game.actions:
            started = time.perf_counter()
            step = await session.step(action)
            played.latencies.append(time.perf_counter() - started)
            if step.ended:
                break
        await session.close()
        played.episodes += 1


# --- load ---


async def loaded(name: str, arguments: argparse.Namespace) -> int:
    seconds, crowds = arguments.seconds, CROWDS
    if catalog().environments[name].light:
        crowds = (*CROWDS, LARGEST)
    if arguments.quick:
        seconds, crowds = 1.0, CROWDS[:2]
    inline = await in_process(name, arguments, seconds)
    print(f"\n## {name}\n\nin one process, without HTTP: {_rate(inline)} steps/s of its core\n")
    print(
        "| sessions | steps/s | steps/s of the server's core | overhead | episodes/s | p50 ms | p95 ms | p99 ms "
        "| KiB each |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    best = 0.0
    for sessions in crowds:
        async with served(name, arguments) as server:
            best = max(best, await row(server, name, sessions, seconds, inline))
    claimed = f"; {FLOOR} are claimed" if name == "textcraft" else ""
    print(f"\n{_rate(best)} steps/s of the server's core at best{claimed}")
    return 0 if arguments.quick or not claimed or best >= FLOOR else 1


async def in_process(name: str, arguments: argparse.Namespace, seconds: float) -> float:
    client = InlineEnv(factory(name, json.loads(arguments.options)), deadlines=PATIENT)
    known = await games(client, name)
    await crowd(client, known, 1, time.perf_counter() + seconds / 4)
    spent = sum(map(_cpu_s, tree(os.getpid())))
    played = await crowd(client, known, 1, time.perf_counter() + seconds)
    spent = sum(map(_cpu_s, tree(os.getpid()))) - spent
    await client.close()
    return len(played.latencies) / spent


async def row(server: Server, name: str, sessions: int, seconds: float, inline: float) -> float:
    client = HttpEnv(server.url, deadlines=PATIENT)
    known = await games(client, name)
    await crowd(client, known, min(sessions, 8), time.perf_counter() + seconds / 4)
    memory = server.memory
    held = [await client.open(known[number % len(known)].task, 0) for number in range(sessions)]
    each = (server.memory - memory) / sessions / 1024
    await asyncio.gather(*(session.close() for session in held))
    started, spent = time.perf_counter(), server.cpu_s
    played = await crowd(client, known, sessions, started + seconds)
    wall, spent = time.perf_counter() - started, server.cpu_s - spent
    await client.close()
    steps = len(played.latencies)
    cuts = quantiles(played.latencies, n=100)
    p50, p95, p99 = (1000 * cuts[percent - 1] for percent in (50, 95, 99))
    overhead = 1e6 * (spent / steps - 1 / inline)
    print(
        f"| {sessions} | {_rate(steps / wall)} | {_rate(steps / spent)} | {overhead:.0f} µs "
        f"| {_rate(played.episodes / wall)} "
        f"| {p50:.1f} | {p95:.1f} | {p99:.1f} | {each:.0f} |",
        flush=True,
    )
    return steps / spent


def _rate(each_second: float) -> str:
    """For a browser, a whole number says little."""
    return f"{each_second:.1f}" if each_second < 100 else f"{each_second:.0f}"


# --- soak ---


@dataclass(frozen=True, slots=True)
class Look:
    episodes: int
    memory: int
    sessions: int
    threads: int
    processes: int
    files: int
    left: int

    def __str__(self) -> str:
        counted = (self.sessions, self.threads, self.processes, self.files, self.left)
        return f"| {self.episodes} | {self.memory / 2**20:.1f} | {' | '.join(map(str, counted))} |"


HEAVY = (attrgetter("processes"), attrgetter("left"))
"""What a leak would increase."""
LIGHT = (*HEAVY, attrgetter("threads"), attrgetter("files"))


async def soaked(name: str, arguments: argparse.Namespace) -> int:
    episodes = 200 if arguments.quick else arguments.soak
    looks: list[Look] = []
    print(f"\n## {name}, {episodes} episodes, every tenth broken off\n")
    print("| episodes | MiB | sessions | threads | processes | open files | temporary files |")
    print("|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    async with served(name, arguments, "--lease", str(LEASE_S)) as server:
        client = HttpEnv(server.url, deadlines=PATIENT)
        known = await games(client, name)
        if catalog().environments[name].light:
            await fill(client, known)
        abandoned = Abandoned()
        for number in range(10):
            await batch(client, known, episodes // 10, number, abandoned)
            await asyncio.sleep(2 * LEASE_S)
            looks.append(await look(server, client, (number + 1) * (episodes // 10)))
            print(looks[-1], flush=True)
        await client.close()
        pids = server.tree
    outlived = await still_there(pids)
    early, late = looks[2:5], looks[7:]  # three each, as a browser's or a Java process's memory is never quite steady
    growth = sum(each.memory for each in late) / sum(each.memory for each in early) - 1
    print(f"\nmemory over the second half: {growth:+.1%}; processes left at the end: {len(outlived)}")
    # an instance that waits for its next episode may still have a page or a server open, from an abandoned one
    kinds, room, noise = (LIGHT, 0, 0.02) if catalog().environments[name].light else (HEAVY, PLAYERS, 0.1)
    flat = (
        growth < noise
        and not any(each.sessions for each in looks)
        and all(max(map(kind, late)) <= max(map(kind, early)) + room for kind in kinds)
    )
    return 0 if arguments.quick or (flat and not outlived) else 1


async def fill(client: EnvClient, known: Sequence[Game]) -> None:
    """Instances have tables of their own: as many as there will ever be must have existed before counting starts."""
    sessions = await asyncio.gather(*(client.open(known[at % len(known)].task, 0) for at in range(MOST)))
    # a plan's table is made when it is asked for
    await asyncio.gather(*(session.advice() for session in sessions))
    for session in sessions:
        await session.close()


async def still_there(pids: Sequence[int]) -> list[int]:
    """Processes that are alive ten seconds after the server has ended; one that only waits to be reaped is not."""
    for _ in range(100):
        pids = [pid for pid in pids if alive(pid)]
        if not pids:
            break
        await asyncio.sleep(0.1)
    return list(pids)


class Abandoned:
    """Abandoned sessions that wait to expire: so few that, with those played, there are never more than `fill`
    opened."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(MOST - PLAYERS)

    async def one_more(self) -> None:
        await self._room.acquire()
        asyncio.get_running_loop().call_later(GONE_S, self._room.release)


async def batch(client: EnvClient, known: Sequence[Game], episodes: int, number: int, abandoned: Abandoned) -> None:
    waiting = iter(range(episodes))
    await asyncio.gather(*(some(client, known, waiting, number, abandoned) for _ in range(PLAYERS)))


async def some(
    client: EnvClient, known: Sequence[Game], waiting: Iterator[int], number: int, abandoned: Abandoned
) -> None:
    for at in waiting:
        game = known[(number + at) % len(known)]
        session = await client.open(game.task, 0)
        for action in game.actions[: 1 if at % BROKEN_OFF == 0 else None]:
            if (await session.step(action)).ended:
                break
        if at % BROKEN_OFF:
            await session.close()
        else:
            await abandoned.one_more()


async def look(server: Server, client: HttpEnv, episodes: int) -> Look:
    health = await client.health()
    sessions = health["sessions"]
    assert isinstance(sessions, int)
    tree = server.tree
    return Look(episodes, server.memory, sessions, server.threads, len(tree), server.files, server.left)


if __name__ == "__main__":
    sys.exit(main())
