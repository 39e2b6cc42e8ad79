"""`agym report RUN... -o report.html`: runs on one page, which opens from disk without a network or a server."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...reporters.quantity import plural
from ..invocation.pages import cache_folder, writable_cache
from ..invocation.shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="the folder of a run, or a folder of runs")
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="report.html", help="the page to write (default: report.html)"
    )


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ...files import write_atomically
    from ...viewer.report.page import MOST_RUNS, write_report
    from ...viewer.runs import find_run_folders

    named = (found.resolve() for name in arguments.runs for found in find_run_folders(shell.cwd / name))
    roots = list(dict.fromkeys(named))
    if not roots:
        raise UsageError(f"no run in {', '.join(arguments.runs)}: name the folder of a run, or of runs")
    if len(roots) > MOST_RUNS:
        raise UsageError(f"a report holds at most {MOST_RUNS} runs, and these are {len(roots)}: name fewer")
    place = _place(arguments.output, roots, shell)
    with writable_cache(cache_folder(shell)) as cache:
        report = write_report(roots, cache)
    try:
        write_atomically(place, report.page, replace=True)
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise UsageError(f"--output {arguments.output}: it cannot be written: {problem}") from error
    runs, episodes = plural(len(roots), "run"), plural(report.num_episodes, "episode")
    shell.out.write(f"wrote {arguments.output}: {runs}, {episodes}, {len(report.page.encode()):,} bytes\n")
    shell.out.writelines(f"left out: {what}\n" for what in report.left_out)
    return Exit.RIGHT


def _place(output: str, roots: list[Path], shell: Shell) -> Path:
    """Where the page goes: a new file, or in place of an earlier report."""
    from ...viewer.report.page import MARK

    place = shell.cwd / output
    if any(root in place.resolve().parents for root in roots):
        raise UsageError(f"--output {output}: nothing is written into the folder of a run")
    if not place.parent.is_dir():
        raise UsageError(f"--output {output}: there is no such folder")
    if place.exists() and not _is_report(place, MARK):
        raise UsageError(f"--output {output}: there is something else under this name; name another file")
    return place


def _is_report(place: Path, mark: str) -> bool:
    try:
        with place.open("rb") as file:
            return place.is_file() and file.read(len(mark)) == mark.encode()
    except OSError:
        return False
