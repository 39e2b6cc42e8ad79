"""Playing an environment: turn by turn at the terminal, or on a page in a browser. What is played may be saved."""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ...catalog import catalog
from ...envs.registry import is_folder
from ...reporters.episodes import escape_line, wrap_text
from ...reporters.quantity import plural
from .environments import open_target
from .pages import cache_folder, check_port, data_folder, serve_pages, writable_cache
from .shell import Exit, Shell, UsageError

if TYPE_CHECKING:
    from ...envs.protocol import EnvClient, EnvSpec, Observation, TaskInfo
    from ...runtime.agents.formats import AgentFormat
    from ...viewer.play.table import Table

__all__ = ["play_at_terminal", "play_in_browser"]

_HELP = """\
Type an action and press Enter. Besides:
  ?     what an expert would do now
  help  this list, the guide of the environment, and what can be done
  quit  end the episode; so does an empty line
"""
_PICTURES = "screenshots"
"""Option of the environments that provide pictures."""


# --- in a browser --------------------------------------------------------------------------------------------------


async def play_in_browser(arguments: argparse.Namespace, shell: Shell) -> Exit:
    """Serve the page of play until a signal."""
    from ...envs.errors import EnvError
    from ...viewer.play.room import Room
    from ...viewer.play.routes import PAGE, play_routes
    from ...viewer.runs import Runs

    check_port(arguments.port)
    _refuse_run(arguments, shell)
    client = await open_target(arguments, _with_pictures(arguments.target))
    try:
        spec = await client.spec()
        task = await _choose_task(client, spec, arguments)
        room = Room(
            name=_name(arguments.target, spec),
            client=client,
            form=_form(arguments.format, spec),
            folder=_save_folder(arguments, spec, shell),
            clock=time.perf_counter,
            wall_clock=time.time,
            first_split=arguments.split or next(iter(spec.splits), None),
            first_task=task.id,
            first_seed=arguments.seed,
        )
    except EnvError as error:
        await client.close()
        raise UsageError(str(error)) from error
    except BaseException:
        await client.close()
        raise
    try:
        with writable_cache(cache_folder(shell)) as cache:
            await serve_pages(
                Runs([], cache),
                shell,
                port=arguments.port,
                opens_browser=not arguments.no_open,
                more=play_routes(room),
                abilities=("play",),
                static=PAGE,
            )
    finally:
        await room.close()
    return Exit.RIGHT


def _with_pictures(target: str) -> Mapping[str, bool]:
    info = catalog().environments.get(target)
    return {_PICTURES: True} if info is not None and _PICTURES in info.options else {}


def _save_folder(arguments: argparse.Namespace, spec: EnvSpec, shell: Shell) -> Path:
    if arguments.save is not None:
        return Path(shell.cwd, arguments.save)
    return data_folder(shell) / "played" / "".join(each if each.isalnum() else "_" for each in spec.name)[:60]


def _refuse_run(arguments: argparse.Namespace, shell: Shell) -> None:
    if arguments.save is not None:
        place = (shell.cwd / arguments.save).resolve()
        if any((folder / "plan.json").is_file() for folder in (place, *place.parents)):
            raise UsageError(f"--save {arguments.save}: nothing is written into the folder of a run; name another")


def _form(name: str, spec: EnvSpec) -> AgentFormat:
    from ...dsl.model.recipe import Agent, Format
    from ...runtime.agents.formats import format_for

    return format_for(Agent(format=Format(name)), tools=spec.tools, free_text=spec.free_text)


def _name(target: str, spec: EnvSpec) -> str:
    return spec.name if "://" in target or is_folder(target) else target


async def _choose_task(client: EnvClient, spec: EnvSpec, arguments: argparse.Namespace) -> TaskInfo:
    """The task that was named, or else the first of the split."""
    from ...envs.protocol import TaskInfo

    if arguments.task:
        return TaskInfo(id=arguments.task)
    split = arguments.split or next(iter(spec.splits), "train")
    tasks = await client.tasks(split)
    if not tasks:
        raise UsageError(f"split '{split}' has no task with these options")
    return tasks[0]


# --- at the terminal -----------------------------------------------------------------------------------------------


async def play_at_terminal(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ...envs.clients.seated import seat_by_chance
    from ...envs.errors import EnvError
    from ...viewer.play.table import Table

    _refuse_run(arguments, shell)
    client = await open_target(arguments, {} if arguments.save is None else _with_pictures(arguments.target))
    try:
        spec = await client.spec()
        task = await _choose_task(client, spec, arguments)
        _tell(spec.prompt, shell)
        _tell(f"\n(task {task.id}, seed {arguments.seed}; 'help' says what else can be typed)\n", shell)
        table = Table(
            environment=_name(arguments.target, spec),
            spec=spec,
            task=task,
            seed=arguments.seed,
            client=client,
            session=await seat_by_chance(await client.open(task.id, arguments.seed), spec),
            clock=time.perf_counter,
        )
        try:
            await _play_turns(table, shell)
        finally:
            await table.close()
        if arguments.save is not None:
            _save(table, shell.cwd / arguments.save, _form(arguments.format, spec), shell)
    except EnvError as error:
        raise UsageError(str(error)) from error
    finally:
        await client.close()
    return Exit.RIGHT


async def _play_turns(table: Table, shell: Shell) -> None:
    _show(table.seen, shell)
    while not table.is_over and (typed := await _read_action(table, shell)):
        # an environment may list one of our words as an action of its own
        word = "" if typed in (table.seen.valid_actions or ()) else typed
        if word == _QUIT:
            break
        if word in _WORDS:
            await _WORDS[word](table, shell)
        else:
            step = await table.act(typed)
            _show(step.observation, shell)
    shell.out.write(f"score {table.score:g} after {plural(len(table.played), 'turn')}\n")


async def _advise(table: Table, shell: Shell) -> None:
    _tell(await table.advice() or "there is no advice", shell)


async def _help(table: Table, shell: Shell) -> None:
    shell.out.write(_HELP)
    _tell(f"\n{table.spec.prompt}\n", shell)
    if table.seen.valid_actions:
        _tell(f"possible now: {'; '.join(table.seen.valid_actions)}", shell)


_QUIT = "quit"
_WORDS = {"?": _advise, "help": _help}


def _show(observation: Observation, shell: Shell) -> None:
    _tell(observation.text, shell)
    if observation.valid_actions:
        _tell(f"[{'; '.join(observation.valid_actions)}]", shell, "  ")


def _tell(text: str, shell: Shell, indent: str = "") -> None:
    shell.out.write("\n".join(wrap_text(text, shell.width, indent)) + "\n")


def _save(table: Table, folder: Path, form: AgentFormat, shell: Shell) -> None:
    """Save an episode, and a solved one as a demonstration too."""
    from ...viewer.play.saving import NotSaved, save_demonstration, save_episode

    if not table.played:
        shell.out.write("nothing was played, and nothing saved\n")
        return
    record = table.record(f"played-{round(1000 * time.time())}", form)
    try:
        files = [save_episode(folder, record, table.pictures)]
        files += [save_demonstration(folder, record)] if record["success"] else []
    except NotSaved as error:
        raise UsageError(f"--save: {error}") from error
    shell.out.writelines(f"saved in {escape_line(str(folder / file))}\n" for file in files)


async def _read_action(table: Table, shell: Shell) -> str:
    """The line typed, empty at the end; read in a thread, so the event loop answers the server meanwhile."""
    of = "" if table.spec.max_turns is None else f" of {table.spec.max_turns}"
    shell.out.write(f"turn {len(table.played) + 1}{of}, score {table.score:g}> ")
    shell.out.flush()
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()
    threading.Thread(target=_read, args=(shell.stdin, loop, typed), daemon=True).start()
    return await typed


def _read(stdin: BinaryIO, loop: asyncio.AbstractEventLoop, typed: asyncio.Future[str]) -> None:
    # bypasses the buffer: a thread that waits there holds its lock, and Python cannot exit meanwhile
    line = getattr(stdin, "raw", stdin).readline().decode("utf-8", "replace").strip()
    loop.call_soon_threadsafe(_set_line, typed, line)


def _set_line(typed: asyncio.Future[str], line: str) -> None:
    if not typed.done():
        typed.set_result(line)
