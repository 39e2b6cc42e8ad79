"""The Reporter of a run: the console, and every sink that the recipe names.

Each sink has a queue and a thread of its own: a slow, hanging or failing one holds up neither the run nor the others.
A sink that fails is switched off, with one note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Thread

from ...dsl.model.hidden import conceal, reveal
from ...dsl.model.plan import Plan
from ...dsl.publish.plan_json import dump_json
from ..errors import RunError
from ..reporting import EventKind, MetricsRow, SilentReporter
from ..rollout.episode import Episode
from ..storage.events import EventLog
from ..text_format import strip_control
from .console.console import Clock, Console, Terminal, console_on
from .episode_table import make_table
from .protocol import Factory, MetricsSink, Opening
from .registry import factory_of

__all__ = ["Fanout", "list_variables", "open_fanout", "redact"]

_QUEUE_SIZE = 1000
"""Rows and notes that a sink may be behind."""
_CLOSE_TIMEOUT_S = 30.0
"""For a sink to take what is left when the run ends."""
_FAILED_CLOSE_TIMEOUT_S = 2.0
"""For one that was switched off, and may hang."""
_REASON = 300
"""Characters of an error that are shown."""
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_USER_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@]+@")
_SHORTEST_SECRET = 6
"""Shorter values are everyday words."""


def redact(text: str, environ: Mapping[str, str], named: Collection[str] = ()) -> str:
    """Remove values of variables that are named like secrets or referred to in the recipe, and users and passwords of
    addresses: the errors of libraries may quote them."""
    shown = {value: "***" for name, value in environ.items() if _SECRET_NAME.search(name)}
    shown |= {environ[name]: f"${{env:{name}}}" for name in sorted(named) if name in environ}
    # the longest first: one may be a part of another
    for secret in sorted((each for each in shown if len(each) >= _SHORTEST_SECRET), key=len, reverse=True):
        text = text.replace(secret, shown[secret])
    return _USER_IN_ADDRESS.sub("***@", text)


def list_variables(plan: Plan) -> frozenset[str]:
    """Names of the environment variables that a plan refers to."""
    return frozenset(re.findall(r"\$\{env:(\w+)", dump_json(plan)))


class Fanout:
    """Passes all that the engine reports to the console and to each sink."""

    def __init__(
        self,
        console: Console,
        sinks: Mapping[str, MetricsSink],
        environ: Mapping[str, str],
        named: Collection[str] = (),
        events: EventLog | None = None,
        *,
        queue_size: int = _QUEUE_SIZE,
        close_timeout_s: float = _CLOSE_TIMEOUT_S,
    ) -> None:
        self._console = console
        self._environ = environ
        self._named = named
        self._events = events
        self._close_timeout_s = close_timeout_s
        self._queues = [_SinkQueue(name, sink, self._report_failure, queue_size) for name, sink in sinks.items()]

    def phase(self, name: str) -> None:
        self._show(lambda console: console.phase(name))

    def episode(self, episode: Episode) -> None:
        self._show(lambda console: console.episode(episode))

    def row(self, row: MetricsRow) -> None:
        if self._events is not None:
            self._events.total_step = int(row["total_step"])
        for queue in self._queues:
            queue.put(lambda sink: sink.write(row))
        self._show(lambda console: console.row(row))

    def sample(self, name: str, total_step: int, episodes: Sequence[Episode]) -> None:
        table = make_table(name, total_step, episodes, lambda text: redact(text, self._environ, self._named))
        for queue in self._queues:
            if queue.takes_tables and table.rows:
                queue.put(lambda sink: sink.table(table))  # type: ignore[attr-defined]

    def note(self, text: str) -> None:
        self.event(EventKind.NOTE, text)

    def event(self, kind: EventKind, text: str, **facts: int | str) -> None:
        safe = redact(text, self._environ, self._named)
        if self._events is not None:
            self._events.add(kind, safe, **facts)
        if kind.is_shown:
            for queue in self._queues:
                queue.put(lambda sink: sink.note(safe))
            self._show(lambda console: console.note(safe))

    def close(self, summary: Iterable[str] = (), *, failed: bool = False) -> None:
        """Wait for the sinks, but not for ever; then show the summary."""
        for queue in self._queues:
            queue.end(failed)
        for queue in self._queues:
            queue.wait(self._close_timeout_s)
        self._show(lambda console: console.close(redact(line, self._environ, self._named) for line in summary))
        if self._events is not None:
            self._events.close()

    def _show(self, job: Callable[[Console], None]) -> None:
        try:
            job(self._console)
        # a closed pipe or terminal: no reason to lose the training
        except (OSError, ValueError) as error:
            self._console = _NoConsole()
            self.note(f"the console is gone ({error})")

    def _report_failure(self, name: str, reason: str) -> None:
        # redacted before it is cut: half a key is still a secret
        safe = strip_control(redact(reason, self._environ, self._named), _REASON)
        self.note(f"the sink '{name}' {safe}; the run goes on without it, and metrics.jsonl has every row")


class _NoConsole(SilentReporter):
    def close(self, summary: Iterable[str] = ()) -> None: ...


class _SinkQueue:
    """Rows and notes on their way to one sink, taken there in order by a thread of its own."""

    def __init__(self, name: str, sink: MetricsSink, report_failure: Callable[[str, str], None], size: int) -> None:
        self._name = name
        self._sink = sink
        self._report_failure = report_failure
        self.takes_tables = hasattr(sink, "table")
        self._on = True
        self._run_failed = False
        self._queue: Queue[Callable[[MetricsSink], None] | None] = Queue(size)
        self._thread = Thread(target=self._run, name=f"agym sink {name}", daemon=True)
        self._thread.start()

    def put(self, job: Callable[[MetricsSink], None]) -> None:
        if self._on and not self._offer(job):
            self._fail(f"is {self._queue.maxsize} rows behind")

    def end(self, failed: bool) -> None:
        """Close after all that waits; where a sink hangs, the oldest row makes room."""
        self._run_failed = failed
        while not self._offer(None):
            with suppress(Empty):
                self._queue.get_nowait()

    def wait(self, timeout_s: float) -> None:
        self._thread.join(timeout_s if self._on else min(timeout_s, _FAILED_CLOSE_TIMEOUT_S))
        if self._thread.is_alive():
            self._fail(f"did not finish within {timeout_s:g}s of the end")

    def _offer(self, job: Callable[[MetricsSink], None] | None) -> bool:
        try:
            self._queue.put_nowait(job)
        except Full:
            return False
        return True

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            if self._on:
                self._try(job)
        # one that was switched off is closed too: it releases what it holds
        self._try(lambda sink: sink.close(failed=self._run_failed))

    def _try(self, job: Callable[[MetricsSink], None]) -> None:
        try:
            job(self._sink)
        # a library may raise anything, and the training is worth more
        except Exception as error:
            self._fail(f"failed ({type(error).__name__}: {error})")

    def _fail(self, reason: str) -> None:
        if self._on:
            self._on = False
            self._report_failure(self._name, reason)


def open_fanout(
    plan: Plan,
    folder: Path,
    terminal: Terminal,
    environ: Mapping[str, str],
    clock: Clock,
    wall_clock: Clock,
    find: Callable[[str], Factory] = factory_of,
    recipe: str = "",
) -> Fanout:
    """Open the console and every sink of the plan's `logging`; a RunError where a person must fix something first."""
    sinks: dict[str, MetricsSink] = {}
    troubles: list[tuple[str, str]] = []
    named = list_variables(plan)
    for settings in plan.logging:
        opening = Opening(
            settings=reveal(settings),
            plan=conceal(plan),
            folder=folder,
            environ=environ,
            wall_clock=wall_clock,
            recipe=recipe,
        )
        try:
            sinks[settings.use] = find(settings.use)(opening)
        except RunError:
            for sink in sinks.values():
                # the error that led here is the one to report
                with suppress(Exception):
                    sink.close(failed=True)
            raise
        # an unreachable server, a full disk
        except Exception as error:
            reason = strip_control(redact(f"{type(error).__name__}: {error}", environ, named), _REASON)
            troubles.append((settings.use, reason))
    console = console_on(terminal, conceal(plan), clock)
    fanout = Fanout(console, sinks, environ, named, EventLog(folder, wall_clock))
    for name, reason in troubles:
        fanout.note(f"the sink '{name}' could not be opened ({reason}); metrics.jsonl has every row")
    return fanout
