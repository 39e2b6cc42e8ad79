"""Numbers, durations and foreign text on one line: text from a model, environment or library is made safe to print, and
to show to a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite, isnan

__all__ = [
    "escape_control_tokens",
    "format_count",
    "format_duration",
    "format_number",
    "format_share",
    "numeric",
    "strip_control",
]

_ELLIPSIS = "..."
_ABSENT = "-"
_CONTROL_TOKEN = re.compile(r"<(?=[|\uff5c/A-Za-z_])|\[(?=\||e~|/?[A-Z_]+\])|\](?=~)")
"""First character of what the chat templates of published models begin or end a message with, such as `<|im_end|>`,
`</s>`, `[INST]`, `[|endofturn|]` and `[e~[`."""


def format_number(value: float) -> str:
    """Three significant digits; thousands in full."""
    if isnan(value):
        return _ABSENT
    if not isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if value and abs(value) < 0.001:
        return f"{value:.1e}"
    return f"{value:.3g}"


def format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_share(value: float) -> str:
    """Two decimals of a share of one."""
    return _ABSENT if isnan(value) else f"{value:.2f}"


def format_duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02d}m"
    return f"{hours // 24}d {hours % 24:02d}h"


def numeric(row: Mapping[str, float | int | str], name: str) -> float | None:
    """A metric of a row; None where the row has no such number."""
    value = row.get(name)
    return float(value) if isinstance(value, (int, float)) and not isnan(value) else None


def strip_control(text: str, limit: int) -> str:
    """One line of at most `limit` characters, all of them printable."""
    # cut first: a reply of a million characters costs no more than a short one
    cut = text[: limit + 1]
    safe = cut if cut.isprintable() else "".join(map(_printable, cut))
    return safe if len(safe) <= limit else safe[: max(limit - len(_ELLIPSIS), 0)] + _ELLIPSIS[:limit]


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def escape_control_tokens(text: str) -> str:
    """Write the first character of each as JSON's escape, so that no model server reads it as a control token.

    For a model whose tokenizer is not known; otherwise `Chat` breaks exactly the tokens that the model has.
    """
    return _CONTROL_TOKEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
