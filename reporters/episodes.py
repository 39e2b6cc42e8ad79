"""Recorded episodes for a terminal. Control and bidirectional characters are shown as escapes, as their text is that of
models and strangers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..viewer.queries import EpisodeSummary

__all__ = ["episode_text", "escape_line", "wrap_text"]

_INDENT = "    "
_UNKNOWN = "not recorded"


def episode_text(summary: EpisodeSummary, record: Mapping[str, Any], width: int) -> str:
    """A whole episode, turn by turn, without its tokens."""
    lines = [*_head(summary), ""]
    for message in record["opening"]:
        lines += _block(str(message["role"]), str(message["content"]), width)
    for number, turn in enumerate(record["turns"], 1):
        lines += ["", _turn_line(number, len(record["turns"]), turn)]
        lines += _block("reply", str(turn["reply"]), width)
        lines += _block(str(turn.get("role", "user")), str(turn["observation"]), width)
    return "\n".join((*lines, ""))


def escape_line(text: str) -> str:
    """Escape what does not print, such as colours, bells and changes of direction."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _head(each: EpisodeSummary) -> Iterator[str]:
    mode = each.mode or ("" if each.purpose == "demonstration" else f"mode {_UNKNOWN}")
    yield escape_line(
        f"{each.id}  {each.environment}, task {each.task}, seed {each.seed}  "
        f"step {each.step}, stage {each.stage}  {mode}"
    ).rstrip()
    result = "success" if each.success else "no success"
    yield escape_line(
        f"{each.ending} after {each.turns} of {each.horizon} turns, {each.invalid_turns} invalid; "
        f"score {each.score:g}, {result}; {each.sampled_tokens:,} tokens in {each.seconds:g} s"
    )
    if each.purpose == "train":
        kept = _UNKNOWN if each.kept is None else "yes" if each.kept else "no"
        yield f"reward {_number(each.reward)}, advantage {_number(each.advantage)}, trained on: {kept}"


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.4g}"


def _turn_line(number: int, of: int, turn: Mapping[str, Any]) -> str:
    purpose, action = turn.get("purpose", "act"), turn["action"]
    parts = [f"turn {number}/{of}"]
    if purpose != "act":
        parts.append(escape_line(str(purpose)))
    else:
        parts.append("no action" if action is None else f"action '{escape_line(str(action))}'")
    parts.append(f"reward {turn['reward']:g}")
    advantage = turn.get("advantage")
    if isinstance(advantage, int | float):
        parts.append(f"advantage {advantage:.4g}")
    elif advantage:
        known = [each for each in advantage if each is not None]
        parts.append(f"advantage {min(known):.4g} to {max(known):.4g}" if known else "advantage not a number")
    if turn.get("trained") is False:
        parts.append("masked")
    if seconds := turn.get("seconds"):
        parts.append(f"{seconds['sampling']:g} s + {seconds['environment']:g} s")
    return "  ".join(parts)


def wrap_text(text: str, width: int, indent: str = "") -> Iterator[str]:
    """Escape a text and cut its lines at spaces where there are some."""
    for line in text.split("\n"):
        yield from _wrap(escape_line(line), max(width - len(indent), 20), indent)


def _block(name: str, text: str, width: int) -> Iterator[str]:
    yield f"  {escape_line(name)}:"
    yield from wrap_text(text, width, _INDENT)


def _wrap(line: str, width: int, indent: str) -> Iterator[str]:
    while len(line) > width:
        cut = line.rfind(" ", 1, width + 1)
        cut = cut if cut > 0 else width
        yield indent + line[:cut].rstrip()
        line = line[cut:].lstrip()
    yield (indent + line).rstrip()
