"""One HTML file that needs nothing else: data, script and style are inside, and it loads nothing from anywhere.

Its policy names script and style by their hashes, so that nothing in the data can run. Texts reach the page by
`textContent` alone.
"""

from __future__ import annotations

import html
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...runtime.storage.episode_reader import DamagedEpisode
from ..index import EpisodeIndex
from ..json_log import dump_json
from ..queries import EpisodeSummary, Queries
from .choosing import choose_episodes
from .gather import DETAILS, describe_episode, describe_run

__all__ = ["LARGEST", "MARK", "MOST_EPISODES", "MOST_RUNS", "Report", "write_report"]

MARK = "<!doctype html>\n<!-- agym report -->\n"
"""The beginning of each report."""
LARGEST = 10_000_000
"""Bytes of a report."""
MOST_EPISODES = 200
MOST_RUNS = 20
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A page, and what it holds."""

    page: str
    num_episodes: int
    left_out: tuple[str, ...]
    """Its note on what it leaves out."""


def write_report(roots: Sequence[Path], cache: Path) -> Report:
    """Write the page of at most `MOST_RUNS` runs; indexes of their episodes are kept in a folder for caches."""
    head, tail = _frame([root.name for root in roots])
    room = LARGEST - len((head + tail).encode()) - 100_000  # for the list of what is left out
    runs = _describe_runs(roots, room)
    room -= len(_encode(runs))
    shown, missing = _add_episodes(runs, roots, cache, room)
    left_out = tuple(
        [f"{run['name']}: {what}" for run in runs for what in run["left_out"]]
        + [f"{missing:,} of {missing + shown:,} episodes"] * bool(missing)
        + ["tokens and pictures of episodes"]
    )
    page = f"{head}{_encode({'runs': runs, 'left_out': left_out})}{tail}"
    return Report(page=page, num_episodes=shown, left_out=left_out)


def _describe_runs(roots: Sequence[Path], room: int) -> list[dict[str, Any]]:
    """All runs without their episodes, in as much detail as takes at most half of the room, or else the least."""
    for detail in DETAILS:
        runs = [describe_run(root, detail) for root in roots]
        if len(_encode(runs)) <= room // 2:
            break
    return runs


def _add_episodes(runs: Sequence[dict[str, Any]], roots: Sequence[Path], cache: Path, room: int) -> tuple[int, int]:
    """Add episodes, from each run in turn, as long as there is room; return how many are in, and how many are not."""
    total, shown = 0, 0
    with ExitStack() as opened:
        waiting = []
        for run, root in zip(runs, roots, strict=True):
            run["episodes"] = []
            index = opened.enter_context(EpisodeIndex(root, cache))
            total += index.update()
            queries = Queries(index)
            waiting.append((run, queries, iter(choose_episodes(queries, MOST_EPISODES // len(roots)))))
        for run, episode in _take_turns(waiting):
            size = len(_encode(episode)) + 1
            if size <= room:
                room, shown = room - size, shown + 1
                run["episodes"].append(episode)
    return shown, total - shown


_Waiting = tuple[dict[str, Any], Queries, Iterator[EpisodeSummary]]


def _take_turns(waiting: Sequence[_Waiting]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    while waiting:
        going_on = []
        for run, queries, summaries in waiting:
            summary = next(summaries, None)
            if summary is None:
                continue
            going_on.append((run, queries, summaries))
            try:
                record = queries.record(summary)
            except (DamagedEpisode, KeyError, OSError):
                continue
            yield run, describe_episode(summary, record)
        waiting = going_on


# --- the page ------------------------------------------------------------------------------------------------------


def _encode(value: Any) -> str:
    """JSON that cannot end an HTML element: it is plain ASCII, without `<`."""
    return dump_json(value).decode("ascii").replace("<", "\\u003c")


def _frame(names: Sequence[str]) -> tuple[str, str]:
    """The page before its data, and after."""
    script, style = ((_HERE / name).read_text(encoding="utf-8") for name in ("report.js", "report.css"))
    sources = f"script-src {_hash(script)}; style-src {_hash(style)}"
    policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    title = html.escape("".join(each if each.isprintable() else "?" for each in ", ".join(names))[:200])
    head = (
        f'{MARK}<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n<main></main>\n"
        "<noscript>This page is drawn by its script, which is switched off.</noscript>\n"
        '<script type="application/json" id="data">'
    )
    return head, f"</script>\n<script>{script}</script>\n</body>\n</html>\n"


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
