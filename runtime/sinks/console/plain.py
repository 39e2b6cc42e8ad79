"""One line per step, per measurement, per note: what is printed where nobody watches a terminal.

Enters: where the run stands, after a row. Leaves: a line of ASCII, but for foreign names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...reporting import MetricsRow
from ...storage.summary import eval_results
from ...text_format import format_duration, format_number, format_share, numeric, strip_control
from .remaining import Remaining
from .state import ConsoleState, is_eval

__all__ = ["line", "note_line", "step_facts_text", "time_left"]

_NAME = 40
_NOTE = 500
_FACTS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("turns", "horizon/turns", format_number),
    ("success", "rollout/success", format_share),
    ("reward", "rollout/reward", format_number),
    ("used", "rollout/turns", format_number),
    ("loss", "train/loss", format_number),
    ("kl", "train/kl", format_number),
    ("entropy", "train/entropy", format_number),
)
"""What is told of a step, where it was measured: title, metric, form."""


def line(standing: ConsoleState, row: MetricsRow) -> str:
    """Of the row that `standing` has just taken in."""
    return "  ".join(_eval(row) if is_eval(row) else _step(standing, row))


def note_line(text: str) -> str:
    return f"note: {strip_control(text, _NOTE)}"


def _step(standing: ConsoleState, row: MetricsRow) -> Iterator[str]:
    bound = standing.bound()
    of = f"/{bound}" if bound is not None else ""
    yield f"step {standing.total_step}"
    yield f"{strip_control(standing.stage, _NAME)} {standing.step}{of}"
    yield from step_facts_text(row)
    seconds, left = numeric(row, "timing_s/step"), standing.remaining()
    if seconds is not None:
        yield f"{seconds:.2f}s"
    if left is not None:
        yield time_left(left)


def _eval(row: MetricsRow) -> Iterator[str]:
    yield f"eval at step {row.get('total_step', 0)}"
    for name, measure in eval_results(row):
        greedy = numeric(row, f"eval/{name}/greedy_success")
        yield f"{strip_control(name, _NAME)} {measure}" + (
            f" greedy {format_share(greedy)}" if greedy is not None else ""
        )
    seconds = numeric(row, "timing_s/eval")
    if seconds is not None:
        yield f"{seconds:.2f}s"


def step_facts_text(row: MetricsRow) -> Iterator[str]:
    for title, name, form in _FACTS:
        value = numeric(row, name)
        if value is not None:
            yield f"{title} {form(value)}"
    pace = _tokens_per_s(row)
    if pace is not None:
        yield f"{format_number(pace)} tokens/s"
    if row.get("guard/action"):
        yield f"guard {strip_control(str(row['guard/action']), _NAME)}"


def _tokens_per_s(row: MetricsRow) -> float | None:
    """Sampled per second of rollout; where nothing is sampled, learnt from per second of update."""
    for tokens, seconds in (("rollout/tokens", "timing_s/rollout"), ("train/tokens", "timing_s/update")):
        made, took = numeric(row, tokens), numeric(row, seconds)
        if made is not None and took:
            return made / took
    return None


def time_left(left: Remaining) -> str:
    return f"left {'' if left.whole else 'over '}{format_duration(left.seconds)}"
