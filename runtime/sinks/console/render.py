"""Text of the console: a line per step, evaluation and note, and the frame of the live view.

Text from models and environments goes through `strip_control`; the lines of a frame are (text, style) parts, no markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from ...reporting import MetricsRow
from ...rollout.episode import Episode, Turn
from ...storage.summary import eval_results
from ...text_format import format_duration, format_number, format_share, numeric, strip_control
from .state import ConsoleState, Remaining, is_eval

__all__ = ["FrameLine", "frame_lines", "note_line", "row_line"]

_NAME = 40
_NOTE = 500
_TURNS = 3
"""Of the episode that ended last."""
_FACTS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("turns", "horizon/turns", format_number),
    ("success", "rollout/success", format_share),
    ("reward", "rollout/reward", format_number),
    ("used", "rollout/turns", format_number),
    ("loss", "train/loss", format_number),
    ("kl", "train/kl", format_number),
    ("entropy", "train/entropy", format_number),
)
"""Facts of a step, each shown where its row has the metric: title, metric, format."""

FrameLine: TypeAlias = tuple[tuple[str, str], ...]


# --- lines ---------------------------------------------------------------------------------------------------------


def row_line(state: ConsoleState, row: MetricsRow) -> str:
    """The row that `state` has just taken in."""
    return "  ".join(_eval_parts(row) if is_eval(row) else _step_parts(state, row))


def note_line(text: str) -> str:
    return f"note: {strip_control(text, _NOTE)}"


def _step_parts(state: ConsoleState, row: MetricsRow) -> Iterator[str]:
    yield f"step {state.total_step}"
    yield f"{_name(state.stage)} {state.progress}"
    yield from _facts(row)
    seconds, left = numeric(row, "timing_s/step"), state.remaining()
    if seconds is not None:
        yield f"{seconds:.2f}s"
    if left is not None:
        yield _time_left(left)


def _eval_parts(row: MetricsRow) -> Iterator[str]:
    yield f"eval at step {row.get('total_step', 0)}"
    for name, result in eval_results(row):
        greedy = numeric(row, f"eval/{name}/greedy_success")
        yield f"{_name(name)} {result}" + (f" greedy {format_share(greedy)}" if greedy is not None else "")
    seconds = numeric(row, "timing_s/eval")
    if seconds is not None:
        yield f"{seconds:.2f}s"


def _facts(row: MetricsRow) -> Iterator[str]:
    for title, name, format_value in _FACTS:
        value = numeric(row, name)
        if value is not None:
            yield f"{title} {format_value(value)}"
    pace = _tokens_per_s(row)
    if pace is not None:
        yield f"{format_number(pace)} tokens/s"
    if row.get("guard/action"):
        yield f"guard {_name(str(row['guard/action']))}"


def _tokens_per_s(row: MetricsRow) -> float | None:
    """Sampled per second of rollout; where nothing is sampled, trained on per second of update."""
    for tokens, seconds in (("rollout/tokens", "timing_s/rollout"), ("train/tokens", "timing_s/update")):
        made, took = numeric(row, tokens), numeric(row, seconds)
        if made is not None and took:
            return made / took
    return None


def _time_left(left: Remaining) -> str:
    return f"left {'' if left.whole else 'over '}{format_duration(left.seconds)}"


def _name(text: str) -> str:
    return strip_control(text, _NAME)


# --- the frame -----------------------------------------------------------------------------------------------------


def frame_lines(state: ConsoleState, elapsed_s: float, width: int) -> Iterator[FrameLine]:
    """At most a dozen lines; the caller cuts each at the width."""
    yield (("─" * width, "dim"),)
    yield _header(state)
    value, curve = numeric(state.last, "rollout/success"), str(state.success)
    if value is not None or curve:
        now = format_share(value) if value is not None else "-"
        yield ("success ", ""), (now, "bold green"), ("  ", ""), (curve, "green")
    yield from _wrapped_facts(state, width)
    first = dict(state.first_eval)
    for name, last in state.last_eval:
        before = first.get(name, last)
        change = "" if before is last else f"{format_share(before.success)} -> "
        yield (f"eval {_name(name)}  {change}", ""), (str(last), "bold")
    yield ((_time_line(state, elapsed_s), "dim"),)
    if state.episode is not None:
        yield from _episode_lines(state.episode, width)


def _header(state: ConsoleState) -> FrameLine:
    parts = [(_name(state.plan.name), "bold")]
    if state.stage:
        number = state.planned.index + 1 if state.planned else 0
        parts.append((f"  {_name(state.stage)} {number}/{len(state.plan.stages)}", "bold cyan"))
        parts.append((f"  step {state.progress}, {state.total_step} in all", "bold default"))
    parts.append((f"  {_name(state.phase)}", "dim"))
    if state.episodes:
        parts.append((f", {state.episodes:,} episodes", "dim"))
    return tuple(parts)


def _wrapped_facts(state: ConsoleState, width: int) -> Iterator[FrameLine]:
    """On as many lines as they need: none is cut off."""
    line = ""
    # success has a line of its own
    for fact in (fact for fact in _facts(state.last) if not fact.startswith("success ")):
        if line and len(line) + 2 + len(fact) > width:
            yield ((line, ""),)
            line = ""
        line = f"{line}  {fact}" if line else fact
    if line:
        yield ((line, ""),)


def _time_line(state: ConsoleState, elapsed_s: float) -> str:
    parts = [format_duration(elapsed_s)]
    left, seconds = state.remaining(), numeric(state.last, "timing_s/step")
    if left is not None:
        parts.append(_time_left(left))
    if seconds is not None:
        parts.append(f"{seconds:.2f}s a step")
    return "  ".join(parts)


def _episode_lines(episode: Episode, width: int) -> Iterator[FrameLine]:
    outcome = "success" if episode.success else "no success"
    done = f"{episode.num_turns} of {episode.horizon} turns, {episode.ending}, {outcome}"
    yield ((f"{_name(episode.task.environment)} {_name(episode.task.id)}: {done}", "dim"),)
    for turn in episode.turns[-_TURNS:]:
        yield _action_line(turn, width)
        yield ((f"    {strip_control(turn.observation, width)}", "dim"),)


def _action_line(turn: Turn, width: int) -> FrameLine:
    if turn.invalid:
        return ("  > ", ""), (strip_control(turn.reply, width), "red"), (" (no action)", "dim")
    return ((f"  > {strip_control(turn.action or turn.reply, width)}", ""),)
