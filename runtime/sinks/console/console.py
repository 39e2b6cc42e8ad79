"""The console of a run: a live view on a terminal, a line per step elsewhere, a summary at the end.

The live view is drawn by a thread of its own from the state it finds: a slow terminal slows nothing else, and the time
spent on drawing is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Protocol, TextIO

from ....dsl.model.plan import Plan
from ...reporting import MetricsRow, Reporter, SilentReporter
from ...rollout.episode import Episode
from .render import frame_lines, note_line, row_line
from .state import ConsoleState

if TYPE_CHECKING:
    from rich.console import Console as Screen
    from rich.console import Group

__all__ = ["Clock", "Console", "LiveConsole", "PlainConsole", "Terminal", "console_on", "wants_live"]

Clock = Callable[[], float]

_PAUSE_S = 0.25
_IDLE_S = 1.0
"""Between two frames that differ by the clock alone."""
_SHARE = 0.02
"""Of the time, at most, is spent on drawing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """Where a run is shown."""

    out: TextIO
    live: bool
    width: int | None = None
    """Columns; None for those that the terminal has."""


class Console(Reporter, Protocol):
    """A Reporter that ends with a summary."""

    def close(self, summary: Iterable[str] = ()) -> None: ...


def wants_live(out: TextIO, environ: Mapping[str, str]) -> bool:
    """True for a terminal that can redraw, colour and show block characters."""
    dumb = environ.get("TERM", "dumb") in ("dumb", "unknown") or bool(environ.get("NO_COLOR"))
    return out.isatty() and not dumb and (out.encoding or "").lower().replace("-", "") == "utf8"


def console_on(terminal: Terminal, plan: Plan, clock: Clock) -> Console:
    if not terminal.live:
        return PlainConsole(terminal.out, plan)
    from rich.console import Console as Screen  # 60 ms, and never needed for plain lines

    screen = Screen(file=terminal.out, width=terminal.width, markup=False, emoji=False, highlight=False)
    console = LiveConsole(screen, plan, clock)
    console.start()
    return console


class PlainConsole(SilentReporter):
    """A line per row, note and part of the start, at once."""

    def __init__(self, out: TextIO, plan: Plan) -> None:
        self._out = out
        self._state = ConsoleState(plan)

    def phase(self, name: str) -> None:
        # the parts of a start take long; those of a step are in its line
        if name.startswith("start: "):
            self._print(name)

    def row(self, row: MetricsRow) -> None:
        self._state.add(row)
        self._print(row_line(self._state, row))

    def note(self, text: str) -> None:
        self._print(note_line(text))

    def close(self, summary: Iterable[str] = ()) -> None:
        for text in summary:
            self._print(text)

    def _print(self, text: str) -> None:
        encoding = self._out.encoding or "utf-8"
        # a name that the stream cannot encode is no reason to stop
        self._out.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        self._out.flush()


class LiveConsole(SilentReporter):
    """A frame that is redrawn in place; evaluations and notes stay above it."""

    def __init__(self, screen: Screen, plan: Plan, clock: Clock) -> None:
        from rich.live import Live

        self._screen = screen
        self._clock = clock
        self._began = clock()
        self._state = ConsoleState(plan)
        self._lines: deque[str] = deque()
        self._changed = True
        self._over = Event()
        self._painter = Thread(target=self._paint, name="agym console", daemon=True)
        self._live = Live(console=screen, auto_refresh=False, transient=True, get_renderable=self.frame)

    def start(self, *, by_itself: bool = True) -> None:
        """Take the lower part of the terminal; draw there by itself, or only when `draw` is called."""
        self._live.start()
        if by_itself:
            self._painter.start()

    def phase(self, name: str) -> None:
        self._state.phase = name
        self._changed = True

    def episode(self, episode: Episode) -> None:
        self._state.end_episode(episode)
        self._changed = True

    def row(self, row: MetricsRow) -> None:
        self._state.add(row)
        if "eval/success" in row:
            self._lines.append(row_line(self._state, row))
        self._changed = True

    def note(self, text: str) -> None:
        self._lines.append(note_line(text))
        self._changed = True

    def draw(self, *, idle: bool = False) -> None:
        """One frame, if there is something new or, when `idle`, to advance the clock."""
        if not (self._changed or idle):
            return
        self._changed = False
        self._flush()
        self._live.refresh()

    def close(self, summary: Iterable[str] = ()) -> None:
        self._over.set()
        if self._painter.is_alive():
            self._painter.join(timeout=2.0)
        self._flush()
        self._live.stop()
        for text in summary:
            self._show(text)

    def _flush(self) -> None:
        while self._lines:
            self._show(self._lines.popleft())

    def _show(self, text: str) -> None:
        from rich.text import Text

        self._screen.print(Text(text), soft_wrap=True)

    def frame(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        width = self._screen.width
        lines = [Text.assemble(*line) for line in frame_lines(self._state, self._clock() - self._began, width)]
        for line in lines:
            line.no_wrap = True
            line.truncate(width, overflow="ellipsis")
        return Group(*lines)

    def _paint(self) -> None:
        """Draw a few times a second, less often where drawing is slow."""
        pause, since_idle = _PAUSE_S, 0.0
        while not self._over.wait(pause):
            since_idle = 0.0 if since_idle >= _IDLE_S else since_idle + pause
            started = self._clock()
            try:
                self.draw(idle=since_idle >= _IDLE_S)
            except (OSError, ValueError):
                return  # the terminal is gone, or its stream was closed; the run goes on without a view
            pause = max(_PAUSE_S, (self._clock() - started) / _SHARE)
