"""Signs that a run trains without learning, from its rows: noted while they last, and listed at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..reporting import MetricsRow
from ..text_format import format_count, format_number, numeric, strip_control

__all__ = ["LearningSigns"]

_PATIENCE = 5
"""Steps in a row that a sign lasts before it is noted."""
_ENTROPY_RISE = 3.0
"""Times the entropy of the stage's first steps."""
_ENTROPY_ROOM = 0.5
"""Nats per token by which it has to rise as well: a small entropy may double and mean nothing."""
_LEAST_ENTROPY = 1e-4
"""Nats per token: below it every reply is the same."""
_MOST_KL = 5.0
"""Nats per token from the reference: the two share hardly a token by then."""

_Rows = Sequence[MetricsRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sign:
    holds: Callable[[_Rows, _Rows], bool]
    """Of the stage's first rows and its last."""
    text: Callable[[_Rows], str]
    """What is wrong and what to do, from the last rows."""
    brief: bool = False
    """Whether fewer steps than the patience count at the end of a stage."""


def _all(rows: _Rows, name: str, test: Callable[[float], bool]) -> bool:
    values = [numeric(row, name) for row in rows]
    return bool(values) and all(value is not None and test(value) for value in values)


def _explodes(first: _Rows, last: _Rows) -> bool:
    begun = [value for row in first if (value := numeric(row, "train/entropy")) is not None]
    bound = max(sum(begun) / max(len(begun), 1) * _ENTROPY_RISE, _ENTROPY_ROOM)
    return len(first) == _PATIENCE and bool(begun) and _all(last, "train/entropy", lambda value: value > bound)


def _fails(rows: _Rows) -> str:
    none = ", and no episode succeeded" if _all(rows, "rollout/success", lambda value: value == 0) else ""
    return f"for {format_count(len(rows), 'step')} the weights were not updated{none}: "


_SIGNS = {
    "no spread": _Sign(
        holds=lambda _, last: (
            _all(last, "group/zero_std_frac", lambda value: value == 1)
            and _all(last, "train/updates", lambda value: value == 0)
        ),
        text=lambda last: (
            _fails(last)
            + "the episodes of each group had equal rewards; use easier or harder tasks, a larger 'group_size' or more "
            "'turns', or begin with a stage of 'sft'"
        ),
        brief=True,
    ),
    "no updates": _Sign(
        holds=lambda _, last: (
            not _all(last, "group/zero_std_frac", lambda value: value == 1)
            and _all(last, "train/updates", lambda value: value == 0)
        ),
        text=lambda last: _fails(last) + "look at 'filter', 'guards' and the faults of the environments",
        brief=True,
    ),
    "entropy explodes": _Sign(
        holds=_explodes,
        text=lambda last: (
            f"the entropy rose to {_value(last, 'train/entropy')} nats per token, over {_ENTROPY_RISE:g} times "
            "its value in the stage's first steps: replies become random; "
            "lower 'lr' or 'entropy.coef', or raise 'kl.coef'"
        ),
    ),
    "entropy vanishes": _Sign(
        holds=lambda _, last: _all(last, "train/entropy", lambda value: value < _LEAST_ENTROPY),
        text=lambda last: (
            f"the entropy fell to {_value(last, 'train/entropy')} nats per token: all episodes of a task "
            "become the same; lower 'lr', or raise 'entropy.coef' or 'kl.coef'"
        ),
    ),
    "kl grows": _Sign(
        holds=lambda _, last: _all(last, "train/kl", lambda value: value > _MOST_KL),
        text=lambda last: (
            f"the KL divergence from the reference grew to {_value(last, 'train/kl')} nats per token: "
            "the policy has left the model that it began from; lower 'lr', or raise 'kl.coef'"
        ),
    ),
}


def _value(rows: _Rows, name: str) -> str:
    return format_number(numeric(rows[-1], name) or 0.0)


class LearningSigns:
    """The signs of a run, given its rows in order."""

    def __init__(self) -> None:
        self._stage = ""
        self._first: list[MetricsRow] = []
        self._last: list[MetricsRow] = []
        self._noted: set[tuple[str, str]] = set()
        self._ended: list[str] = []

    def add(self, row: MetricsRow) -> list[str]:
        """Take a row; return what there is to note for the first time in this stage."""
        if "train/updates" not in row:
            return []
        if row["stage"] != self._stage:
            self._ended += self._present()
            self._stage, self._first, self._last = str(row["stage"]), [], []
        if len(self._first) < _PATIENCE:
            self._first.append(row)
        self._last = [*self._last[1 - _PATIENCE :], row]
        return [text for name, text in self._holding().items() if self._is_new(name)]

    def at_end(self) -> list[str]:
        """The signs that each stage ended with."""
        return [*self._ended, *self._present()]

    def _present(self) -> list[str]:
        return [*self._holding(at_end=True).values()]

    def _holding(self, *, at_end: bool = False) -> dict[str, str]:
        return {
            name: f"stage '{strip_control(self._stage, 40)}': {sign.text(self._last)}"
            for name, sign in _SIGNS.items()
            if (len(self._last) == _PATIENCE or (at_end and sign.brief)) and sign.holds(self._first, self._last)
        }

    def _is_new(self, name: str) -> bool:
        key = (self._stage, name)
        is_new = key not in self._noted
        self._noted.add(key)
        return is_new
