"""A plot of lines as SVG: mean of several curves, and the range between the lowest and the highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Panel", "svg"]

Point = tuple[float, float]

_COLOURS = ("#1b6ca8", "#c0392b", "#6c8a1f", "#7d3c98", "#b9770e")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 300, 46, 12, 28, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Some curves over the same axis; each name has the curves of several runs."""

    x: str
    curves: Mapping[str, Sequence[Sequence[Point]]]


def svg(title: str, panels: Sequence[Panel]) -> str:
    """Side by side, from 0 to 1."""
    width, height = _WIDTH * len(panels), _HEIGHT + 22 * len(panels[0].curves) + 24
    body = [f'<text x="{_LEFT}" y="18" font-weight="bold">{title}</text>']
    for at, panel in enumerate(panels):
        body.append(f'<g transform="translate({at * _WIDTH},10)">{_panel(panel)}</g>')
    for at, name in enumerate(panels[0].curves):
        y = _HEIGHT + 24 + 22 * at
        body.append(f'<rect x="{_LEFT}" y="{y - 9}" width="18" height="4" fill="{_COLOURS[at]}"/>')
        body.append(f'<text x="{_LEFT + 26}" y="{y}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>{"".join(body)}</svg>\n'
    )


def _panel(panel: Panel) -> str:
    most = max(x for runs in panel.curves.values() for run in runs for x, _ in run)

    def place(x: float, y: float) -> str:
        across = _LEFT + x / most * (_WIDTH - _LEFT - _RIGHT)
        return f"{across:.1f},{_TOP + (1 - y) * (_HEIGHT - _TOP - _BOTTOM):.1f}"

    parts = []
    for level in (0, 0.25, 0.5, 0.75, 1):
        start, end = place(0, level).split(","), place(most, level).split(",")
        parts.append(f'<line x1="{start[0]}" y1="{start[1]}" x2="{end[0]}" y2="{end[1]}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{float(start[1]) + 4}" text-anchor="end">{level:g}</text>')
    for share in (0, 0.5, 1):
        x = place(most * share, 0).split(",")
        parts.append(f'<text x="{x[0]}" y="{float(x[1]) + 16}" text-anchor="middle">{most * share:,.0f}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" text-anchor="middle">{panel.x}</text>')
    for at, runs in enumerate(panel.curves.values()):
        columns = [list(zip(*column, strict=True)) for column in zip(*runs, strict=True)]
        middle = [(sum(xs) / len(xs), sum(ys) / len(ys)) for xs, ys in columns]
        low = [(x, min(ys)) for (x, _), (_, ys) in zip(middle, columns, strict=True)]
        high = [(x, max(ys)) for (x, _), (_, ys) in zip(middle, columns, strict=True)]
        band = " ".join(place(*point) for point in (*high, *reversed(low)))
        line = " ".join(place(*point) for point in middle)
        parts.append(f'<polygon points="{band}" fill="{_COLOURS[at]}" opacity="0.12"/>')
        parts.append(f'<polyline points="{line}" fill="none" stroke="{_COLOURS[at]}" stroke-width="2"/>')
    return "".join(parts)
