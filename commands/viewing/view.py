"""`agym view RUN...`: serves pages on recorded episodes and metrics; `--text` prints episodes at the terminal,
`--replay` plays one again, `--export` writes some as SFT data.

Only reads run folders; its index is in the user's cache, tags in their data folder.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...reporters.quantity import plural
from ..invocation.environments import open_recorded
from ..invocation.pages import cache_folder, check_port, data_folder, serve_pages, writable_cache
from ..invocation.shell import Exit, Shell, UsageError

if TYPE_CHECKING:
    from ...envs.protocol import EnvClient
    from ...viewer.index import EpisodeIndex
    from ...viewer.play.replay import Replayed
    from ...viewer.queries import EpisodeFilter, EpisodeSummary, Queries

__all__ = ["add_arguments", "run"]

_LIMIT = 5
"""Episodes of a run that are printed."""
_MOST_EXPORTED = 100_000
_BATCH = 5000
"""Episodes that are asked for at once."""
_OF_SERVER = {"port": None, "no_browser": False}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="the folder of a run, or a folder of runs")
    parser.add_argument("--port", type=int, metavar="N", help="of the server, 1 to 65535 (default: one that is free)")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument("--text", action="store_true", help="print episodes at the terminal, and serve nothing")
    parser.add_argument("--task", metavar="ID", help="only episodes of this task")
    parser.add_argument("--step", type=int, metavar="N", help="only episodes of this step")
    parser.add_argument("--where", default="", metavar="EXPR", help='those of which it is true: "success == false"')
    parser.add_argument("--words", default="", metavar="TEXT", help="only episodes with these words")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="only those with this tag; repeatable"
    )
    parser.add_argument("--add-tag", metavar="TAG", help="with --text, give this tag to what is printed")
    parser.add_argument("--remove-tag", metavar="TAG", help="with --text, take this tag from what is printed")
    parser.add_argument("--replay", metavar="ID", help="play this episode again, and show the first difference")
    parser.add_argument("--export", metavar="FILE", help="write episodes as SFT data to a new file")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N of each run, newest first (default: 5)")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    ways = {name: way for name, way in _WAYS.items() if getattr(arguments, name)}
    if len(ways) > 1:
        raise UsageError(f"{' and '.join(f'--{name}' for name in ways)} do not go together")
    return next(iter(ways.values()), _serve)(arguments, shell)


# --- the server ----------------------------------------------------------------------------------------------------


def _serve(arguments: argparse.Namespace, shell: Shell) -> Exit:
    _refuse_others(arguments, {**_CHANGES, **_OF_TEXT}, "--text; without it, filters are on the pages")
    check_port(arguments.port)
    from ...viewer.play.pictures import picture_routes
    from ...viewer.play.routes import replay_routes
    from ...viewer.runs import Runs
    from ...viewer.tags.routes import tag_routes
    from ...viewer.tags.store import TagStore

    def open_environment(root: Path, name: str, stage: str) -> Awaitable[EnvClient]:
        return open_recorded(root, name, stage, shell, typed=False)

    with writable_cache(cache_folder(shell)) as cache:
        runs = Runs([shell.cwd / name for name in arguments.runs], cache)
        if not runs.list():
            raise UsageError(f"no run in {', '.join(arguments.runs)}: name the folder of a run, or of runs")
        tags = tag_routes(runs, TagStore(_tags_folder(shell)))
        more = [*picture_routes(runs), *tags, *replay_routes(runs, open_environment)]
        opens = not arguments.no_browser
        abilities = ("pictures", "replay", "tags")
        asyncio.run(serve_pages(runs, shell, port=arguments.port, opens_browser=opens, more=more, abilities=abilities))
    return Exit.RIGHT


def _tags_folder(shell: Shell) -> Path:
    return data_folder(shell) / "tags"


_OF_TEXT: Mapping[str, object] = {"task": None, "step": None, "where": "", "words": "", "limit": None, "tag": []}
"""Options of `--text` and `--export`, and their defaults."""
_CHANGES: Mapping[str, object] = {"add_tag": None, "remove_tag": None}
"""Options of `--text` alone."""


def _refuse_others(arguments: argparse.Namespace, others: Mapping[str, object], goes_with: str) -> None:
    for name, default in others.items():
        if getattr(arguments, name) != default:
            raise UsageError(f"--{name.replace('_', '-')} goes with {goes_with}")


# --- an episode, done again ----------------------------------------------------------------------------------------


def _replay(arguments: argparse.Namespace, shell: Shell) -> Exit:
    """Replay one episode; it is a failure where the environment does something else now."""
    from ...reporters.replay import replay_text

    others = {**_CHANGES, **_OF_TEXT, **_OF_SERVER}
    _refuse_others(arguments, others, "the pages, --text or --export, and not with --replay")
    root, record = _find_record(arguments, shell)
    replayed = asyncio.run(_replay_record(root, record, shell))
    shell.out.write(replay_text(arguments.replay, replayed, shell.width))
    return Exit.RIGHT if replayed.difference is None else Exit.RUN_FAILED


def _find_record(arguments: argparse.Namespace, shell: Shell) -> tuple[Path, dict[str, Any]]:
    for root in _recorded(arguments, shell):
        with _open_index(root, shell) as (_, queries):
            summary = queries.summary(arguments.replay)
            if summary is not None:
                return root, queries.record(summary)
    raise UsageError(f"no episode '{arguments.replay[:80]}' in {', '.join(arguments.runs)}: --text lists their ids")


async def _replay_record(root: Path, record: Mapping[str, Any], shell: Shell) -> Replayed:
    from ...envs.errors import EnvError
    from ...viewer.play.replay import replay_episode

    try:
        client = await open_recorded(root, record["task"]["environment"], record["stage"], shell, typed=True)
        try:
            return await replay_episode(client, record)
        finally:
            await client.close()
    except EnvError as error:
        raise UsageError(str(error)) from error


# --- SFT data ------------------------------------------------------------------------------------------------------


def _export(arguments: argparse.Namespace, shell: Shell) -> Exit:
    """Write the episodes that were chosen as conversations to imitate."""
    from ...files import write_atomically
    from ...viewer.tags.messages import export_lines
    from ...viewer.tags.routes import read_records

    _refuse_others(arguments, {**_CHANGES, **_OF_SERVER}, "the pages or --text, and not with --export")
    place = shell.cwd / arguments.export
    if os.path.lexists(place) or not place.parent.is_dir():
        raise UsageError(f"--export {arguments.export}: name a new file in a folder that is there")
    if any(root.resolve() in place.resolve().parents for root in _recorded(arguments, shell)):
        raise UsageError(f"--export {arguments.export}: nothing is written into the folder of a run")
    texts, num_written, num_others = list[str](), 0, 0
    for root in _recorded(arguments, shell):
        with _open_index(root, shell) as (_, queries):
            chosen = _chosen(root, queries, arguments, arguments.limit or _MOST_EXPORTED, shell)[0]
            text, written, others = export_lines(read_records(queries, chosen))
        texts, num_written, num_others = [*texts, text], num_written + written, num_others + others
    if not num_written:
        raise UsageError("no episode that was chosen is a conversation; nothing was written")
    write_atomically(place, "".join(texts))
    shell.out.write(f"wrote {plural(num_written, 'conversation')} to {arguments.export}\n")
    if num_others:
        shell.err.write(
            f"agym view: {plural(num_others, 'episode')} left out: not conversations, as their context was cut\n"
        )
    return Exit.RIGHT


# --- the terminal --------------------------------------------------------------------------------------------------


def _print_episodes(arguments: argparse.Namespace, shell: Shell) -> Exit:
    if arguments.port is not None or arguments.no_browser:
        raise UsageError("--port and --no-browser are of the server, which --text does without")
    for each in _recorded(arguments, shell):
        _print_run(each, arguments, shell)
    return Exit.RIGHT


def _recorded(arguments: argparse.Namespace, shell: Shell) -> list[Path]:
    from ...viewer.reader import find_runs

    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError("--limit must be at least 1")
    runs = [found for name in arguments.runs for found in find_runs(shell.cwd / name)]
    if not runs:
        raise UsageError(f"no recorded episodes in {', '.join(arguments.runs)}: name the folder of a run, or of runs")
    return runs


@contextmanager
def _open_index(root: Path, shell: Shell) -> Iterator[tuple[EpisodeIndex, Queries]]:
    from ...viewer.index import EpisodeIndex
    from ...viewer.queries import Queries

    with EpisodeIndex(root, cache_folder(shell)) as index:
        index.update()
        yield index, Queries(index)


def _print_run(root: Path, arguments: argparse.Namespace, shell: Shell) -> None:
    from ...reporters.episodes import episode_text

    with _open_index(root, shell) as (index, queries):
        episodes, total = _chosen(root, queries, arguments, arguments.limit or _LIMIT, shell)
        for each in episodes:
            shell.out.write(episode_text(each, queries.record(each), shell.width) + "\n")
            _change_tags(root, each, arguments, shell)
        shell.out.write(f"{root.name}: {len(episodes)} of {total} episodes\n")
        if index.num_damaged:
            shell.err.write(f"agym view: {root.name}: {index.num_damaged} lines hold no episode and were left out\n")


def _change_tags(root: Path, episode: EpisodeSummary, arguments: argparse.Namespace, shell: Shell) -> None:
    from ...viewer.tags.store import TagError, TagStore

    store = TagStore(_tags_folder(shell))
    try:
        for tag, on in ((arguments.add_tag, True), (arguments.remove_tag, False)):
            if tag is not None:
                store.change(root, episode, tag, on=on)
    except TagError as error:
        raise UsageError(str(error)) from error
    if tags := store.tags(root, episode):
        shell.out.write(f"tags: {', '.join(tags)}\n\n")


def _chosen(
    root: Path, queries: Queries, arguments: argparse.Namespace, limit: int, shell: Shell
) -> tuple[list[EpisodeSummary], str]:
    """The newest episodes by the options, and how many there are."""
    from ...viewer.queries import EpisodeFilter
    from ...viewer.tags.store import TagStore
    from ...viewer.where import WhereError

    wanted = EpisodeFilter(
        tasks=() if arguments.task is None else (arguments.task,),
        first_step=arguments.step,
        last_step=arguments.step,
        where=arguments.where,
        words=arguments.words,
    )
    try:
        if not arguments.tag:
            total = queries.find(wanted, limit=1)
            found = list(islice(_find_all(queries, wanted, min(limit, _BATCH)), limit))
            return found, f"{total.total:,}" + ("" if total.is_exact else " or more")
        store, tags = TagStore(_tags_folder(shell)), set(arguments.tag)
        tagged = set(store.of(root))
        found = [
            each
            for each in _find_all(queries, wanted, _BATCH)
            if each.id in tagged and tags & set(store.tags(root, each))
        ]
        return found[:limit], f"{len(found):,}"
    except WhereError as error:
        raise UsageError(str(error)) from error


def _find_all(queries: Queries, wanted: EpisodeFilter, batch: int) -> Iterator[EpisodeSummary]:
    """All episodes of a filter, the newest first."""
    for offset in count(0, batch):
        page = queries.find(wanted, offset=offset, limit=batch)
        yield from page.episodes
        if len(page.episodes) < batch:
            return


_WAYS = {"text": _print_episodes, "replay": _replay, "export": _export}
"""Instead of the server, by the option that asks for each."""
