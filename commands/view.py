"""`agym view RUN... --text`: prints recorded episodes. Only reads run folders; its index lies in the user's cache."""

from __future__ import annotations

import argparse
from pathlib import Path

from .invocation.shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="the folder of a run, or a folder of runs")
    parser.add_argument("--text", action="store_true", required=True, help="print episodes at the terminal")
    parser.add_argument("--task", metavar="ID", help="only episodes of this task")
    parser.add_argument("--step", type=int, metavar="N", help="only episodes of this step")
    parser.add_argument("--where", default="", metavar="EXPR", help='those of which it is true: "success == false"')
    parser.add_argument("--words", default="", metavar="TEXT", help="only episodes with these words")
    parser.add_argument(
        "--limit", type=int, default=5, metavar="N", help="at most N of each run, newest first (default: 5)"
    )


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..viewer.reader import find_runs

    if arguments.limit < 1:
        raise UsageError("--limit must be at least 1")
    runs = [found for name in arguments.runs for found in find_runs(shell.cwd / name)]
    if not runs:
        raise UsageError(f"no recorded episodes in {', '.join(arguments.runs)}: name the folder of a run, or of runs")
    for each in runs:
        _print_run(each, arguments, shell)
    return Exit.RIGHT


def _print_run(root: Path, arguments: argparse.Namespace, shell: Shell) -> None:
    from ..reporters.episodes import episode_text
    from ..viewer.index import EpisodeIndex
    from ..viewer.queries import EpisodeFilter, Queries
    from ..viewer.where import WhereError

    wanted = EpisodeFilter(
        tasks=() if arguments.task is None else (arguments.task,),
        first_step=arguments.step,
        last_step=arguments.step,
        where=arguments.where,
        words=arguments.words,
    )
    with EpisodeIndex(root, _cache(shell)) as index:
        index.update()
        queries = Queries(index)
        try:
            page = queries.find(wanted, limit=arguments.limit)
        except WhereError as error:
            raise UsageError(str(error)) from error
        for each in page.episodes:
            shell.out.write(episode_text(each, queries.record(each), shell.width) + "\n")
        more = "" if page.is_exact else " or more"
        shell.out.write(f"{root.name}: {len(page.episodes)} of {page.total:,}{more} episodes\n")
        if index.num_damaged:
            shell.err.write(f"agym view: {root.name}: {index.num_damaged} lines hold no episode and were left out\n")


def _cache(shell: Shell) -> Path:
    home = shell.environ.get("XDG_CACHE_HOME") or str(Path(shell.environ.get("HOME") or Path.home()) / ".cache")
    return Path(home) / "agym" / "viewer"
