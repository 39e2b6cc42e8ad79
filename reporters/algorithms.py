"""The named algorithms in a few lines each, with the paper that introduced it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from ..dsl.check.presets import PresetInfo

__all__ = ["algorithms_text"]


def algorithms_text(presets: Iterable[PresetInfo], width: int) -> str:
    return "".join(f"{line}\n" for each in presets for line in _lines(each, width))


def _lines(preset: PresetInfo, width: int) -> Iterator[str]:
    head = f"    {preset.name:<14}"
    yield from textwrap.wrap(
        f"{preset.summary} From: {preset.source}.", width, initial_indent=head, subsequent_indent=" " * len(head)
    )
