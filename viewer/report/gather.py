"""What a report says about a run, at one of several levels of detail, and what it leaves out of an episode."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .. import overview
from ..json_log import JsonLog, read_text
from ..metric_table import MetricLog, MetricTable
from ..metrics import curves, metric_names
from ..queries import EpisodeSummary

__all__ = ["DETAILS", "Detail", "describe_episode", "describe_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """How much of a run is shown."""

    points: int
    """Of a curve."""
    lines: int
    """Of events, and of evaluations: the newest."""
    characters: int
    """Of the recipe."""


DETAILS = (
    Detail(points=300, lines=300, characters=100_000),
    Detail(points=100, lines=60, characters=20_000),
    Detail(points=30, lines=15, characters=3_000),
)
"""From the most to the least; the first that fits is taken."""

_CHARTS: Mapping[str, str] = {
    "success": r"rollout/success|eval/success|eval/[^/]+/success",
    "reward": r"rollout/(score|reward)|group/std",
    "loss": r"train/(loss|policy_loss)|critic/loss|train/grad_norm",
    "kl": r"train/kl|mismatch/kl|reward/kl",
    "entropy": r"train/entropy",
    "turns and tokens": r"rollout/(turns|length)|rollout/horizon",
    "trouble": r"rollout/(invalid_rate|truncated_rate|faults)|train/skipped|guards?/.*",
    "seconds": r"timing_s/.*",
}
_MOST_KEYS = 6
"""Of a chart."""
_MOST_TEXT = 8_000
"""Characters of a text in an episode."""
_EVENT_TEXT = 300


def describe_run(root: Path, detail: Detail) -> dict[str, Any]:
    """All but the episodes."""
    table, events = MetricLog(root / "metrics.jsonl").table(), JsonLog(root / "events.jsonl").rows()
    recipe = read_text(root / "recipe.yaml") or ""
    evaluations, told = overview.evaluations(table), overview.event_lines(events)
    return {
        "name": root.name.encode(errors="replace").decode(),
        **overview.summarize(table),
        "ended": overview.describe_ending(root, events),
        "stages": overview.stages(table),
        "charts": list(_charts(table, detail.points)),
        "evals": evaluations[-detail.lines :],
        "events": [{**each, "text": each["text"][:_EVENT_TEXT]} for each in told[-detail.lines :]],
        "recipe": recipe[: detail.characters],
        "left_out": [
            *_left_out("evaluations", len(evaluations) - detail.lines),
            *_left_out("events", len(told) - detail.lines),
            *_left_out("characters of the recipe", len(recipe) - detail.characters),
        ],
    }


def _charts(table: MetricTable, points: int) -> Iterator[dict[str, Any]]:
    names = metric_names(table)
    for title, pattern in _CHARTS.items():
        keys = [name for name in names if re.fullmatch(pattern, name)][:_MOST_KEYS]
        if keys:
            yield {"title": title, **curves(table, keys, "step", points)}


def _left_out(what: str, number: int) -> Iterator[str]:
    if number > 0:
        yield f"{number:,} {what}"


def describe_episode(summary: EpisodeSummary, record: Mapping[str, Any]) -> dict[str, Any]:
    """An episode as text, without tokens and pictures."""
    told = {each.name: getattr(summary, each.name) for each in fields(EpisodeSummary) if each.name != "number"}
    texts = [{"role": str(each["role"]), "text": _cut(each["content"])} for each in record["opening"]]
    return {**told, "opening": texts, "played": [_turn(turn) for turn in record["turns"]]}


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "purpose": str(turn.get("purpose", "act")),
        "reply": _cut(turn["reply"]),
        "action": None if turn["action"] is None else _cut(turn["action"]),
        "observation": _cut(turn["observation"]),
        "reward": turn["reward"],
    }


def _cut(value: object) -> str:
    text = str(value)
    if len(text) <= _MOST_TEXT:
        return text
    return f"{text[:_MOST_TEXT]}\n[{len(text) - _MOST_TEXT:,} characters are left out]"
