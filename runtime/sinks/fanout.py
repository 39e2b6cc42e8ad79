"""The Reporter of a run: the console, and every sink that the recipe names.

Enters: what the engine tells. Leaves: the same, to each. A row costs the engine as much as putting it into a queue:
each sink has a thread of its own, so that a slow, hanging or failing one holds up neither the run nor the others. What
fails is switched off, with one note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Thread

from ...dsl.model.plan import Plan
from ..errors import RunError
from ..reporting import MetricsRow, SilentReporter
from ..rollout.episode import Episode
from ..text_format import strip_control
from .console.console import Console, Terminal, console_on
from .protocol import Factory, MetricsSink, Opening
from .redaction import redact
from .registry import factory_of

__all__ = ["Fanout", "open_fanout"]

_WAITING = 1000
"""Rows and notes that a sink may be behind."""
_PATIENCE_S = 30.0
"""For a sink to take what is left when the run ends."""
_BRIEFLY_S = 2.0
"""For one that was switched off, and may hang."""
_REASON = 300

Clock = Callable[[], float]


class Fanout:
    """Tells everyone."""

    def __init__(
        self,
        console: Console,
        sinks: Mapping[str, MetricsSink],
        environ: Mapping[str, str],
        *,
        waiting: int = _WAITING,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._console = console
        self._environ = environ
        self._patience_s = patience_s
        self._couriers = [_Courier(name, sink, self._sink_failed, waiting) for name, sink in sinks.items()]

    def phase(self, name: str) -> None:
        try:
            self._console.phase(name)
        except (OSError, ValueError) as error:
            self._console_failed(error)

    def episode(self, episode: Episode) -> None:
        try:
            self._console.episode(episode)
        except (OSError, ValueError) as error:
            self._console_failed(error)

    def row(self, row: MetricsRow) -> None:
        for courier in self._couriers:
            courier.row(row)
        try:
            self._console.row(row)
        except (OSError, ValueError) as error:
            self._console_failed(error)

    def note(self, text: str) -> None:
        said = redact(text, self._environ)
        for courier in self._couriers:
            courier.note(said)
        try:
            self._console.note(said)
        except (OSError, ValueError) as error:
            self._console_failed(error)

    def close(self, last: Iterable[str] = (), *, failed: bool = False) -> None:
        """Waits for the sinks, but not for ever; then the console's last words."""
        for courier in self._couriers:
            courier.end(failed)
        for courier in self._couriers:
            courier.wait(self._patience_s)
        try:
            self._console.close(redact(line, self._environ) for line in last)
        except (OSError, ValueError) as error:
            self._console_failed(error)

    def _sink_failed(self, name: str, reason: str) -> None:
        # redacted before it is cut: half a key is still a secret
        said = strip_control(redact(reason, self._environ), _REASON)
        self.note(f"the sink '{name}' {said}; the run goes on without it, and metrics.jsonl has every row")

    def _console_failed(self, error: Exception) -> None:
        """A closed pipe or terminal: no reason to lose the training."""
        self._console = _NoConsole()
        self.note(f"the console is gone ({error})")


class _NoConsole(SilentReporter):
    def close(self, last: Iterable[str] = ()) -> None: ...


class _Courier:
    """Takes rows to one sink, in their order, in a thread of its own."""

    def __init__(self, name: str, sink: MetricsSink, complain: Callable[[str, str], None], waiting: int) -> None:
        self._name = name
        self._sink = sink
        self._complain = complain
        self._on = True
        self._run_failed = False
        self._queue: Queue[Callable[[], None] | None] = Queue(waiting)
        self._thread = Thread(target=self._carry, name=f"agym sink {name}", daemon=True)
        self._thread.start()

    def row(self, row: MetricsRow) -> None:
        self._put(lambda: self._sink.write(row))

    def note(self, text: str) -> None:
        self._put(lambda: self._sink.note(text))

    def end(self, failed: bool) -> None:
        """After all that waits; of a sink that hangs, the oldest row makes room."""
        self._run_failed = failed
        while not self._offered(None):
            with suppress(Empty):
                self._queue.get_nowait()

    def wait(self, patience_s: float) -> None:
        self._thread.join(patience_s if self._on else min(patience_s, _BRIEFLY_S))
        if self._thread.is_alive():
            self._fail(f"did not finish within {patience_s:g}s of the end")

    def _put(self, job: Callable[[], None]) -> None:
        if self._on and not self._offered(job):
            self._fail(f"is {self._queue.maxsize} rows behind")

    def _offered(self, job: Callable[[], None] | None) -> bool:
        try:
            self._queue.put_nowait(job)
        except Full:
            return False
        return True

    def _carry(self) -> None:
        while (job := self._queue.get()) is not None:
            if self._on:
                self._try(job)
        # one that was switched off is closed too, so that it lets go of what it holds
        self._try(lambda: self._sink.close(failed=self._run_failed))

    def _try(self, job: Callable[[], None]) -> None:
        try:
            job()
        # a library may raise anything; whatever it is, the training is worth more
        except Exception as error:
            self._fail(f"failed ({type(error).__name__}: {error})")

    def _fail(self, reason: str) -> None:
        if self._on:
            self._on = False
            self._complain(self._name, reason)


def open_fanout(
    plan: Plan,
    folder: Path,
    terminal: Terminal,
    environ: Mapping[str, str],
    clock: Clock,
    wall_clock: Clock,
    find: Callable[[str], Factory] = factory_of,
) -> Fanout:
    """Everything that the plan's `logging` asks for. A RunError where a person has to mend something first."""
    sinks: dict[str, MetricsSink] = {}
    troubles: list[tuple[str, str]] = []
    for settings in plan.logging:
        opening = Opening(settings=settings, plan=plan, folder=folder, environ=environ, wall_clock=wall_clock)
        try:
            sinks[settings.use] = find(settings.use)(opening)
        except RunError:
            _close_all(sinks)
            raise
        # an unreachable server, a full disk: what else a service does when it cannot be had
        except Exception as error:
            reason = strip_control(redact(f"{type(error).__name__}: {error}", environ), _REASON)
            troubles.append((settings.use, reason))
    fanout = Fanout(console_on(terminal, plan, clock), sinks, environ)
    for name, reason in troubles:
        fanout.note(f"the sink '{name}' could not be opened ({reason}); metrics.jsonl has every row")
    return fanout


def _close_all(sinks: Mapping[str, MetricsSink]) -> None:
    for sink in sinks.values():
        try:
            sink.close(failed=True)
        # the trouble that led here is the one to be told of
        except Exception:
            continue
