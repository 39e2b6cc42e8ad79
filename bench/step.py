"""Claim: under 5 % of a step of reinforcement is neither sampling, environment nor learning.

The quickstart, shortened: it imitates, then learns at its last horizon; from one row of `metrics.jsonl` to the next all
time is charged to the innermost of the parts below, so that they add up to the whole and nothing is counted twice.
The last but one line is stricter: of sampling it lets vLLM's engine alone count. Watching costs about one part in a
hundred, and is charged to what is watched and what is around it.

    python bench/step.py [--steps 12] [--process] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, ParamSpec, TypeVar

from agym.dsl.model.recipe import Environment
from agym.envs.clients.client import InlineEnv
from agym.envs.protocol import Env, EnvClient
from agym.envs.registry import factory
from agym.runtime.engine import Engine
from agym.runtime.reporting import MetricsRow
from agym.runtime.rollout.env_connections import OpenClient
from agym.runtime.rollout.episode import Episode
from agym.runtime.sinks.console.console import Terminal
from agym.runtime.sinks.fanout import Fanout, open_fanout
from engines import Engines, in_prepared_process, quickstart, started, walked

P = ParamSpec("P")
T = TypeVar("T")

_SLOTS = 128
PARTS = {
    "engine": "sampling: vLLM's engine",
    "sampler": "sampling: requests into the engine, results out of it",
    "env": "environment: reset and step",
    "update": "learning: the update",
    "text": "rendering, tokens to text and back",
    "play": "episodes: reading actions, keeping tokens, the event loop",
    "sync": "weights to the sampler, and the proof",
    "write": "metrics, episodes, console",
    "rest": "drawing tasks, scoring, advantages, the walk itself",
}
_ASKED_FOR = ("engine", "sampler", "env", "update")
_STRICTLY = ("engine", "env", "update")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--process", action="store_true", help="by this process's time, not the wall's")
    parser.add_argument("--quick", action="store_true", help="three steps, after less of a warm-up")
    arguments = parser.parse_args()
    in_prepared_process()
    ledger = Ledger(clock=time.process_time if arguments.process else time.perf_counter)
    steps, imitated = (3, 60) if arguments.quick else (arguments.steps, 250)
    with tempfile.TemporaryDirectory() as folder:
        print(table(asyncio.run(measure(Path(folder), ledger, imitated, steps))))
    return 0


async def measure(folder: Path, ledger: Ledger, imitated: int, steps: int) -> list[Counter[str]]:
    plan = quickstart(
        f"schedule.0.until=step >= {imitated}",
        "schedule.1.until=step >= 1",
        f"schedule.2.until=step >= {steps}",
        "guards={}",
        "eval=null",
        "schedule.0.eval_every=null",
    )
    fanout = open_fanout(plan, folder, Terminal(out=io.StringIO(), live=False), {}, time.perf_counter, time.time)
    reporter = Charged(fanout, ledger)
    async with started(plan, folder, _SLOTS, reach=ledger.around) as engines:
        ledger.watch(engines)
        await walked(plan, folder, engines.workers, reporter, ledger.watch_engine)
    fanout.close([], failed=False)
    # the stage before has another horizon, and the first step of any is a warm-up
    return reporter.steps[2:]


def table(steps: Sequence[Counter[str]]) -> str:
    wholes = [sum(step.values()) for step in steps]
    lines = ["| part of a step | seconds, median | share, min / median / max |", "|---|---|---|"]
    for name, what in PARTS.items():
        lines.append(_line(what, [step[name] for step in steps], wholes))
    lines.append(_line("**neither sampling, environment nor learning**", _without(steps, _ASKED_FOR), wholes))
    lines.append(_line("neither vLLM's engine, environment nor learning", _without(steps, _STRICTLY), wholes))
    lines.append(_line(f"whole step, {len(steps)} of them", wholes, wholes))
    return "\n".join(lines)


def _without(steps: Sequence[Counter[str]], parts: Sequence[str]) -> list[float]:
    return [sum(spent for name, spent in step.items() if name not in parts) for step in steps]


def _line(what: str, seconds: Sequence[float], wholes: Sequence[float]) -> str:
    shares = sorted(100 * part / whole for part, whole in zip(seconds, wholes, strict=True))
    return f"| {what} | {median(seconds):.4f} | {shares[0]:.1f} / {median(shares):.1f} / {shares[-1]:.1f} % |"


# --- who has the time ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ledger:
    """Charges all time to the innermost part under way."""

    clock: Callable[[], float]
    spent: Counter[str] = field(default_factory=Counter)
    _under_way: list[str] = field(default_factory=lambda: ["rest"])
    _since: float = 0.0

    def take(self) -> Counter[str]:
        self._charge()
        spent, self.spent = self.spent, Counter()
        return spent

    def _charge(self) -> None:
        now = self.clock()
        self.spent[self._under_way[-1]] += now - self._since
        self._since = now

    def call(self, part: str, function: Callable[P, T]) -> Callable[P, T]:
        def charged(*args: P.args, **kwargs: P.kwargs) -> T:
            if self._under_way[-1] == "sync":  # whole, engine and all
                return function(*args, **kwargs)
            self._charge()
            self._under_way.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                self._charge()
                self._under_way.pop()

        return charged

    def wait(self, part: str, function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """Charge a coroutine that nothing else runs alongside."""

        async def charged(*args: P.args, **kwargs: P.kwargs) -> T:
            self._charge()
            self._under_way.append(part)
            try:
                return await function(*args, **kwargs)
            finally:
                self._charge()
                self._under_way.pop()

        return charged

    def _calls(self, thing: object, part: str, *names: str) -> None:
        for name in names:
            setattr(thing, name, self.call(part, getattr(thing, name)))

    def around(self, opened: OpenClient) -> OpenClient:
        """The environment in this process, each instance of it charged."""

        async def open_charged(name: str, settings: Environment) -> EnvClient:
            make = factory(str(settings.use), settings.options)

            def charged() -> Env:
                env = make()
                self._calls(env, "env", "reset", "step")
                return env

            return InlineEnv(charged)

        return open_charged

    def watch(self, engines: Engines) -> None:
        sampler: Any = engines.rollout.sampler
        workers: Any = engines.workers
        self._calls(sampler._core, "engine", "get_output", "add_request", "abort_requests", "reset_prefix_cache")
        self._calls(sampler, "sampler", "_step", "_admit")
        self._calls(engines.rollout._chat, "text", "begin", "follow", "truncate", "decode")
        self._calls(engines.learner.learner, "update", "update")
        workers.play, workers.sync = self.wait("play", workers.play), self.wait("sync", workers.sync)

    def watch_engine(self, engine: Engine) -> None:
        self._calls(engine, "write", "_write", "_write_episodes")


@dataclass(slots=True)
class Charged:
    """A reporter that cuts the time at each row of a step of reinforcement."""

    fanout: Fanout
    ledger: Ledger
    steps: list[Counter[str]] = field(default_factory=list)

    def phase(self, name: str) -> None:
        self.fanout.phase(name)

    def episode(self, episode: Episode) -> None:
        self.ledger.call("write", self.fanout.episode)(episode)

    def sample(self, name: str, total_step: int, episodes: Sequence[Episode]) -> None:
        self.fanout.sample(name, total_step, episodes)

    def note(self, text: str) -> None:
        self.fanout.note(text)

    def row(self, row: MetricsRow) -> None:
        self.fanout.row(row)
        spent = self.ledger.take()
        if "rollout/success" in row:
            self.steps.append(spent)


if __name__ == "__main__":
    sys.exit(main())
