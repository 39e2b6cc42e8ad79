"""Names of the colours in computed styles."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["name_colour"]

_RGB = re.compile(r"rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)")
_NAMES: Mapping[tuple[int, int, int], str] = {
    (0, 0, 0): "black",
    (255, 255, 255): "white",
    (128, 128, 128): "grey",
    (192, 192, 192): "silver",
    (255, 0, 0): "red",
    (128, 0, 0): "maroon",
    (0, 255, 0): "lime",
    (0, 128, 0): "green",
    (128, 128, 0): "olive",
    (0, 0, 255): "blue",
    (0, 0, 128): "navy",
    (255, 255, 0): "yellow",
    (255, 165, 0): "orange",
    (165, 42, 42): "brown",
    (255, 192, 203): "pink",
    (128, 0, 128): "purple",
    (238, 130, 238): "violet",
    (255, 0, 255): "magenta",
    (0, 255, 255): "cyan",
    (0, 128, 128): "teal",
}


def name_colour(style: str) -> str:
    """Name of a colour, or its hexadecimal form; empty where nothing is painted."""
    found = _RGB.fullmatch(style)
    if found is None or found[4] == "0":
        return ""
    parts = (int(found[1]), int(found[2]), int(found[3]))
    return _NAMES.get(parts) or "#{:02x}{:02x}{:02x}".format(*parts)
