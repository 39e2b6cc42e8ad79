"""An evaluation as a table for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Column, Table

from .diagnostics.text import Style
from .plan_tree import rendered

if TYPE_CHECKING:
    from ..runtime.learning.metrics import EvalOutcomes

__all__ = ["evaluation_table", "outcomes_table"]

_KEY = re.compile(r"eval/(?P<environment>[^/@]+)(?:@(?P<turns>\d+))?/(?P<greedy>greedy_)?(?P<what>.+)")
_AT_K = re.compile(r"(?:avg|pass)@\d+")
_DIFFICULTY = "success/"
_MEASURE = "env/"


def evaluation_table(row: Mapping[str, float | int | str], turns: Mapping[str, int], style: Style) -> str:
    """A line for each environment, horizon and way of sampling; below it one for each difficulty."""
    parts = _parts(row, turns)
    at_k = list(dict.fromkeys(key for part in parts.values() for key in part if _AT_K.fullmatch(key)))
    titles = ("turns", "tasks", "success", "interval", *at_k, "turns played", "faults")
    numbers = (Column(title, justify="right") for title in titles)
    table = Table("environment", *numbers, box=None, pad_edge=False)
    for (environment, horizon, drawn), part in parts.items():
        interval = f"{part['ci_low']:.3f} to {part['ci_high']:.3f}"
        shares = (f"{part[key]:.3f}" if key in part else "" for key in at_k)
        counts = (f"{part['turns']:.1f}", f"{part['faults']:.0f}")
        head = (f"{environment}{drawn}", str(horizon), f"{part['tasks']:.0f}", f"{part['success']:.3f}")
        table.add_row(*head, interval, *shares, *counts)
        for key, value in part.items():
            if key.startswith(_DIFFICULTY):
                table.add_row(f"  {key.removeprefix(_DIFFICULTY)}", "", "", f"{value:.3f}")
    return rendered(table, style) + "".join(_measured(parts))


def _measured(parts: Mapping[tuple[str, int, str], Mapping[str, float]]) -> Iterator[str]:
    """A line for each environment that measures something by itself."""
    for (environment, horizon, drawn), part in parts.items():
        known = [f"{key.removeprefix(_MEASURE)} {value:.3f}" for key, value in part.items() if key.startswith(_MEASURE)]
        if known:
            yield f"{environment}{drawn} in {horizon} turns measured {', '.join(known)}\n"


def outcomes_table(plays: Sequence[tuple[str, int, str, EvalOutcomes]], style: Style) -> str:
    """A line for each environment, horizon and way of sampling: what went wrong, invalid replies and episodes that were
    truncated, and why episodes ended."""
    titles = ("turns", "episodes", "success", "invalid", "truncated")
    numbers = (Column(title, justify="right") for title in titles)
    table = Table("environment", *numbers, "endings", box=None, pad_edge=False)
    for environment, horizon, mode, each in plays:
        shares = (each.success, each.invalid_replies, each.truncated)
        cells = [f"{share.value:.3f} [{share.low:.2f}, {share.high:.2f}]" for share in shares]
        endings = ", ".join(f"{name} {count}" for name, count in each.endings.items())
        name = environment if mode == "sampled" else f"{environment} {mode}"
        table.add_row(name, str(horizon), str(each.episodes + each.faults), *cells, endings)
    return rendered(table, style)


def _parts(
    row: Mapping[str, float | int | str], turns: Mapping[str, int]
) -> Mapping[tuple[str, int, str], dict[str, float]]:
    parts: dict[tuple[str, int, str], dict[str, float]] = {}
    for key, value in row.items():
        match = _KEY.fullmatch(key)
        if match and not isinstance(value, str):
            horizon = int(match["turns"] or turns[match["environment"]])
            part = parts.setdefault((match["environment"], horizon, " greedy" if match["greedy"] else ""), {})
            part[match["what"]] = value
    return parts
