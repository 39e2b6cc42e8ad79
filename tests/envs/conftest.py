"""What tests of environments share: coroutines as tests, and an environment that does what it is told to do."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from agym.envs.errors import EpisodeOver, UnknownSplit, UnknownTask
from agym.envs.protocol import Env, EnvSpec, Observation, Reached, Runs, Step

_PATIENCE_S = 120


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test to its end, which must come within two minutes."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    call = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    asyncio.run(asyncio.wait_for(call, _PATIENCE_S))
    return True


def alive(pid: int) -> bool:
    """Whether a process runs; one that has died and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def started(program: str, temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """A Python program to talk to, with a folder for temporary files of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


class Scripted(Env):
    """Echoes actions; `raise`, `sleep S`, `win`, `cut` and `garbage` do as they say."""

    def __init__(self, runs: Runs = Runs.INLINE, journal: list[str] | None = None) -> None:
        self.spec = EnvSpec(name="scripted", version="1", summary="echoes", splits=("train", "test"), runs=runs)
        self.journal: list[str] = journal if journal is not None else []
        self._playing = False

    def tasks(self, split: str) -> tuple[str, ...]:
        if split not in self.spec.splits:
            raise UnknownSplit(f"no split '{split}'")
        return tuple(f"{split}-{number}" for number in range(3))

    def reset(self, task: str, seed: int) -> Observation:
        self.journal.append(f"reset {task} {seed}")
        if task.startswith("slow"):
            time.sleep(float(task.split()[1]))
        if task == "broken":
            raise RuntimeError("broken at reset")
        if not task.startswith(("train", "test", "slow")):
            raise UnknownTask(f"no task '{task}'")
        self._playing = True
        return Observation(text=f"{task} begins", valid_actions=("win", "cut"))

    def step(self, action: str) -> Step:
        if not self._playing:
            raise EpisodeOver("not playing")
        self.journal.append(action)
        word, _, rest = action.partition(" ")
        if word == "raise":
            raise ValueError("told to raise")
        if word == "sleep":
            time.sleep(float(rest))
        self._playing = word not in ("win", "cut")
        return Step(
            observation=Observation(text=f"echo {action}"),
            reward=float(word == "win"),
            terminated=word == "win",
            truncated=word == "cut",
            info={"length": len(action)},
        )

    def close(self) -> None:
        self.journal.append("close")

    def difficulty(self, task: str) -> str | None:
        return "easy" if task.endswith("0") else None

    def expert(self, task: str, seed: int) -> tuple[str, ...]:
        return ("win",)

    def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None:
        if not actions:
            return None
        return (Reached(task="train-1", actions=len(actions), first=Observation(text=actions[-1])),)

    def advice(self) -> str | None:
        return "win" if self._playing else None

    def noise_action(self, rng: Random) -> str:
        return f"noise {rng.randrange(1000)}"

    def corpus(self) -> Iterator[str]:
        yield "echo"


@pytest.fixture
def journal() -> list[str]:
    """What all instances of `scripted` were told, in order."""
    return []


@pytest.fixture
def scripted(journal: list[str]) -> Callable[[], Env]:
    return lambda: Scripted(journal=journal)


@pytest.fixture
def threaded(journal: list[str]) -> Callable[[], Env]:
    return lambda: Scripted(Runs.POOL, journal)


@pytest.fixture
def own_threaded(journal: list[str]) -> Callable[[], Env]:
    return lambda: Scripted(Runs.THREAD, journal)
