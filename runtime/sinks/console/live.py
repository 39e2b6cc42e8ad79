"""The frame that a terminal shows while a run goes on.

Enters: where the run stands, seconds since it began, a width. Leaves: lines for rich. All foreign text goes through
`clean` and into `Text`, which knows no markup.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group
from rich.text import Text

from ...rollout.episode import Episode, Turn
from ...storage.summary import EvalResult
from ...text_format import format_duration, format_share, numeric, strip_control
from .plain import step_facts_text, time_left
from .state import ConsoleState

__all__ = ["frame"]

_TURNS = 3
_NAME = 40


def frame(standing: ConsoleState, elapsed_s: float, width: int) -> Group:
    """At most a dozen lines, each cut at the width."""
    return Group(*(_fitted(line, width) for line in _lines(standing, elapsed_s, width)))


def _fitted(line: Text, width: int) -> Text:
    line.no_wrap = True
    line.truncate(width, overflow="ellipsis")
    return line


def _lines(standing: ConsoleState, elapsed_s: float, width: int) -> Iterator[Text]:
    yield Text("─" * width, style="dim")
    yield _where(standing)
    yield from _success(standing)
    yield from _facts(standing, width)
    first = dict(standing.first_eval)
    for name, measure in standing.last_eval:
        yield _measured(name, first.get(name, measure), measure)
    yield _clock(standing, elapsed_s)
    if standing.episode is not None:
        yield from _episode(standing.episode, width)


def _where(standing: ConsoleState) -> Text:
    bound, stages = standing.bound(), standing.plan.stages
    line = Text(strip_control(standing.plan.name, _NAME), style="bold")
    if standing.stage:
        place = next((s.index + 1 for s in stages if s.settings.stage == standing.stage), 0)
        line.append(f"  {strip_control(standing.stage, _NAME)} {place}/{len(stages)}", "cyan")
        of = f"/{bound}" if bound is not None else ""
        line.append(f"  step {standing.step}{of}, {standing.total_step} in all", "default")
    line.append(f"  {strip_control(standing.phase, _NAME)}", "not bold dim")
    if standing.episodes:
        line.append(f", {standing.episodes:,} episodes", "not bold dim")
    return line


def _success(standing: ConsoleState) -> Iterator[Text]:
    value, curve = numeric(standing.last, "rollout/success"), str(standing.success)
    if value is not None or curve:
        now = format_share(value) if value is not None else "-"
        yield Text.assemble("success ", (now, "bold green"), "  ", (curve, "green"))


def _facts(standing: ConsoleState, width: int) -> Iterator[Text]:
    """On as many lines as they need: none is cut off."""
    told = ""
    # success has a line of its own
    for fact in (fact for fact in step_facts_text(standing.last) if not fact.startswith("success ")):
        if told and len(told) + 2 + len(fact) > width:
            yield Text(told)
            told = ""
        told = f"{told}  {fact}" if told else fact
    if told:
        yield Text(told)


def _measured(name: str, first: EvalResult, last: EvalResult) -> Text:
    line = Text(f"eval {strip_control(name, _NAME)}  ")
    if first is not last:
        line.append(f"{format_share(first.success)} -> ")
    return line.append(str(last), "bold")


def _clock(standing: ConsoleState, elapsed_s: float) -> Text:
    parts = [format_duration(elapsed_s)]
    left, seconds = standing.remaining(), numeric(standing.last, "timing_s/step")
    if left is not None:
        parts.append(time_left(left))
    if seconds is not None:
        parts.append(f"{seconds:.2f}s a step")
    return Text("  ".join(parts), style="dim")


def _episode(episode: Episode, width: int) -> Iterator[Text]:
    outcome = "success" if episode.success else "no success"
    done = f"{episode.num_turns} of {episode.horizon} turns, {episode.ending}, {outcome}"
    yield Text(
        f"{strip_control(episode.task.environment, _NAME)} {strip_control(episode.task.id, _NAME)}: {done}", style="dim"
    )
    for turn in episode.turns[-_TURNS:]:
        yield _said(turn, width)
        yield Text(f"    {strip_control(turn.observation, width)}", style="dim")


def _said(turn: Turn, width: int) -> Text:
    if turn.invalid:
        return Text.assemble("  > ", (strip_control(turn.reply, width), "red"), (" (no action)", "dim"))
    return Text(f"  > {strip_control(turn.action or turn.reply, width)}")
