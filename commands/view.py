"""`agym view RUN...`: a server of pages on recorded episodes and metrics; `--text` prints episodes at the terminal.

Only reads run folders; its index lies in the user's cache.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import secrets
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .invocation.shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "run"]

_LIMIT = 5
"""Episodes of a run that are printed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="the folder of a run, or a folder of runs")
    parser.add_argument("--port", type=int, metavar="N", help="of the server, 1 to 65535 (default: one that is free)")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument("--text", action="store_true", help="print episodes at the terminal, and serve nothing")
    parser.add_argument("--task", metavar="ID", help="only episodes of this task")
    parser.add_argument("--step", type=int, metavar="N", help="only episodes of this step")
    parser.add_argument("--where", default="", metavar="EXPR", help='those of which it is true: "success == false"')
    parser.add_argument("--words", default="", metavar="TEXT", help="only episodes with these words")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N of each run, newest first (default: 5)")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    return (_print_episodes if arguments.text else _serve)(arguments, shell)


# --- the server ----------------------------------------------------------------------------------------------------


def _serve(arguments: argparse.Namespace, shell: Shell) -> Exit:
    for name, default in _OF_TEXT.items():
        if getattr(arguments, name) != default:
            raise UsageError(f"--{name} goes with --text; without it, filters are on the pages")
    if arguments.port is not None and not 1 <= arguments.port <= 65535:
        raise UsageError("--port must be from 1 to 65535")
    from ..viewer.runs import Runs
    from ..viewer.server import HOST, create_viewer, serve_viewer

    with _writable_cache(_cache(shell)) as cache:
        runs = Runs([shell.cwd / name for name in arguments.runs], cache)
        if not runs.list():
            raise UsageError(f"no run in {', '.join(arguments.runs)}: name the folder of a run, or of runs")
        listener = _listen(HOST, arguments.port)
        port, token = listener.getsockname()[1], secrets.token_urlsafe()
        url = f"http://{HOST}:{port}/{token}/"

        def tell() -> None:
            shell.out.write(f"{url}\n")
            shell.out.write(f"from another machine: ssh -L {port}:{HOST}:{port} {_user()}{socket.gethostname()}\n")
            shell.out.flush()
            if not arguments.no_browser:
                # some browsers hold on to whoever opens them
                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

        asyncio.run(serve_viewer(create_viewer(runs, port=port, token=token), listener, tell))
    return Exit.RIGHT


_OF_TEXT = {"task": None, "step": None, "where": "", "words": "", "limit": None}
"""Options of `--text`, and what they are where they are not given."""


def _listen(host: str, port: int | None) -> socket.socket:
    from ..envs.listener import listen

    try:
        return listen(host, port or 0)
    except OSError as error:
        problem = os.strerror(error.errno or 0)
        raise UsageError(f"--port {port}: {problem}; without --port a free one is taken") from error


def _user() -> str:
    try:
        return f"{getpass.getuser()}@"
    except (KeyError, OSError):  # a user without a name
        return ""


@contextmanager
def _writable_cache(folder: Path) -> Iterator[Path]:
    """The folder, or a temporary one where it cannot be written: all threads are to read the same index."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        is_writable = False
    if is_writable:
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="agym-viewer-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)


# --- the terminal --------------------------------------------------------------------------------------------------


def _print_episodes(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..viewer.reader import find_runs

    if arguments.port is not None or arguments.no_browser:
        raise UsageError("--port and --no-browser are of the server, which --text does without")
    if arguments.limit is not None and arguments.limit < 1:
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
            page = queries.find(wanted, limit=arguments.limit or _LIMIT)
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
