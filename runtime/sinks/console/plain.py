"""One line per step, per measurement, per note: what is printed where nobody watches a terminal.

Enters: where the run stands, after a row. Leaves: a line of ASCII, but for foreign names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...reporting import Row
from ...storage.summary import measures
from ...text_format import clean, duration, number, numeric, share
from .remaining import Remaining
from .state import Standing, is_eval

__all__ = ["facts", "line", "note_line", "time_left"]

_NAME = 40
_NOTE = 500
_FACTS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("turns", "horizon/turns", number),
    ("success", "rollout/success", share),
    ("reward", "rollout/reward", number),
    ("used", "rollout/turns", number),
    ("loss", "train/loss", number),
    ("kl", "train/kl", number),
    ("entropy", "train/entropy", number),
)
"""What is told of a step, where it was measured: title, metric, form."""


def line(standing: Standing, row: Row) -> str:
    """Of the row that `standing` has just taken in."""
    return "  ".join(_eval(row) if is_eval(row) else _step(standing, row))


def note_line(text: str) -> str:
    return f"note: {clean(text, _NOTE)}"


def _step(standing: Standing, row: Row) -> Iterator[str]:
    bound = standing.bound()
    of = f"/{bound}" if bound is not None else ""
    yield f"step {standing.total_step}"
    yield f"{clean(standing.stage, _NAME)} {standing.step}{of}"
    yield from facts(row)
    seconds, left = numeric(row, "timing_s/step"), standing.remaining()
    if seconds is not None:
        yield f"{seconds:.2f}s"
    if left is not None:
        yield time_left(left)


def _eval(row: Row) -> Iterator[str]:
    yield f"eval at step {row.get('total_step', 0)}"
    for name, measure in measures(row):
        greedy = numeric(row, f"eval/{name}/greedy_success")
        yield f"{clean(name, _NAME)} {measure}" + (f" greedy {share(greedy)}" if greedy is not None else "")
    seconds = numeric(row, "timing_s/eval")
    if seconds is not None:
        yield f"{seconds:.2f}s"


def facts(row: Row) -> Iterator[str]:
    for title, name, form in _FACTS:
        value = numeric(row, name)
        if value is not None:
            yield f"{title} {form(value)}"
    pace = _tokens_per_s(row)
    if pace is not None:
        yield f"{number(pace)} tokens/s"
    if row.get("guard/action"):
        yield f"guard {clean(str(row['guard/action']), _NAME)}"


def _tokens_per_s(row: Row) -> float | None:
    """Sampled per second of rollout; where nothing is sampled, learnt from per second of update."""
    for tokens, seconds in (("rollout/tokens", "timing_s/rollout"), ("train/tokens", "timing_s/update")):
        made, took = numeric(row, tokens), numeric(row, seconds)
        if made is not None and took:
            return made / took
    return None


def time_left(left: Remaining) -> str:
    return f"left {'' if left.whole else 'over '}{duration(left.seconds)}"
