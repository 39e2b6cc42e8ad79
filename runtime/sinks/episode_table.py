"""Sampled episodes as a table that trackers show: a few of each evaluation, with what was said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..rollout.episode import Episode, Turn

__all__ = ["COLUMNS", "EpisodeTable", "make_table", "markdown"]

_EPISODES = 8
_TEXT = 6000
"""Characters of an episode; the end is what shows how it went."""

COLUMNS = ("environment", "task", "ending", "success", "score", "turns", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeTable:
    """Episodes of one evaluation, or of a training step at which a checkpoint is saved."""

    name: str
    """`eval` or `train`."""
    total_step: int
    rows: tuple[Mapping[str, str | int | float | bool], ...]
    """By the names in COLUMNS."""


def make_table(name: str, total_step: int, episodes: Sequence[Episode], clean: Callable[[str], str]) -> EpisodeTable:
    """Take the first episodes in the order of their tasks; `clean` removes secrets from their text."""
    chosen = sorted(episodes, key=lambda each: (each.task.environment, each.task.id, each.index))[:_EPISODES]
    return EpisodeTable(name=name, total_step=total_step, rows=tuple(_row(each, clean) for each in chosen))


def _row(episode: Episode, clean: Callable[[str], str]) -> Mapping[str, str | int | float | bool]:
    text = clean("\n".join(_lines(episode)))
    cut = f"...{text[-_TEXT:]}" if len(text) > _TEXT else text
    values = (
        episode.task.environment,
        episode.task.id,
        episode.ending.value,
        episode.success,
        episode.score,
        episode.num_turns,
        cut,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _lines(episode: Episode) -> Iterator[str]:
    for message in episode.opening:
        yield f"[{message.role}] {message.content}"
    for turn in episode.turns:
        yield from _turn(turn)


def _turn(turn: Turn) -> Iterator[str]:
    yield f"[assistant{', invalid' if turn.invalid else ''}] {turn.reply}"
    if turn.observation:
        yield f"[environment] {turn.observation}"


def markdown(table: EpisodeTable) -> str:
    """The table as text: a heading for each episode, and what was said as it was."""
    parts = []
    for row in table.rows:
        facts = ", ".join(f"{name} {row[name]}" for name in COLUMNS[2:-1])
        # no text can close a block that is indented
        body = "\n".join(f"    {line}" for line in str(row["text"]).split("\n"))
        parts.append(f"### {row['environment']} {row['task']}: {facts}\n\n{body}\n")
    return "\n".join(parts)
