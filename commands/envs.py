"""`agym envs list | check | play | serve | new | install`: environments without a recipe.

A TARGET is the name of an environment or its folder, which then runs in this process, or the URL of a server.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping

from ..catalog import catalog
from ..dsl.catalog import EnvironmentInfo
from ..dsl.publish.reference_docs import explain_key
from ..reporters.quantity import plural
from ..runtime.backends.registry import installed_versions
from ..runtime.errors import RunError
from .invocation.environments import find_info, is_address, open_target, read_target_options
from .invocation.parser import Parser
from .invocation.requirements import ENV_PACKAGES, ENV_TOOLS, PLAY_PACKAGES
from .invocation.shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "describe_state", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(
        dest="what", metavar="list | check | play | serve | new | install", required=True, parser_class=Parser
    )
    for name, (summary, add, _) in _ACTIONS.items():
        add(ways.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.", allow_abbrev=False))


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    code = _ACTIONS[arguments.what][2](arguments, shell)
    return code if isinstance(code, Exit) else asyncio.run(code)


# --- list ----------------------------------------------------------------------------------------------------------


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="an environment or its folder, to show its splits and options"
    )


def _list(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..envs.verifiers.folders import list_installed

    known = catalog().environments
    if arguments.name is not None:
        return _describe(arguments.name, known, shell)
    found = installed_versions(
        {package for packages in (PLAY_PACKAGES, *ENV_PACKAGES.values()) for package in packages}
    )
    tools = {extra: find() for extra, (find, _) in ENV_TOOLS.items()}
    rows = [(name, describe_state(known[name], found, tools), known[name].summary) for name in sorted(known)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, installation, summary in rows:
        shell.out.write(f"{name:<{widths[0]}}  {installation:<{widths[1]}}  {summary}\n")
    for each in list_installed(shell.environ):
        shell.out.write(f"verifiers: '{each.name}' is installed, from {', '.join(each.packages)}\n")
    return Exit.RIGHT


def _describe(name: str, known: Mapping[str, EnvironmentInfo], shell: Shell) -> Exit:
    info = find_info(name, known)
    shell.out.write(f"{name}: {info.summary}\nsplits: {', '.join(info.splits) or 'those of its server'}\n")
    for option, schema in sorted(info.options.items()):
        needed = ("  required",) if option in info.required else ()
        shell.out.write("\n".join((*explain_key(f"options.{option}", schema), *needed)) + "\n")
    return Exit.RIGHT


def describe_state(info: EnvironmentInfo, found: Mapping[str, str | None], tools: Mapping[str, str | None]) -> str:
    """Whether all that an environment needs is there, or else what to install."""
    extra = info.extra or ""
    needs = {"serve": PLAY_PACKAGES, **({extra: ENV_PACKAGES[extra]} if extra in ENV_PACKAGES else {})}
    lacking = [name for name, packages in needs.items() if not all(found[package] for package in packages)]
    if lacking:
        return f"pip install 'agym-dsl[{','.join(lacking)}]'"
    return ENV_TOOLS[extra][1] if extra in ENV_TOOLS and tools[extra] is None else "ready"


# --- check ---------------------------------------------------------------------------------------------------------


def _add_check(parser: argparse.ArgumentParser) -> None:
    from ..envs.serving.arguments import share, whole

    _add_target(parser)
    parser.add_argument("--tasks", type=whole(1), default=8, help="tasks to check of each split (default: 8)")
    parser.add_argument("--task", action="append", default=[], metavar="ID", help="a task to check instead; repeatable")
    parser.add_argument(
        "--varying", action="append", default=[], metavar="TOOL", help="a tool whose results may vary; repeatable"
    )
    parser.add_argument("--expert", type=share, default=1.0, help="share that the expert must solve (default: 1)")


def _check(arguments: argparse.Namespace, shell: Shell) -> Exit:
    """Run the checks in a process of their own, as the environment's code may end it silently."""
    from ..envs.serving.process_guard import run_guarded

    # output that is captured in this process would be lost in another one
    if is_address(arguments.target) or shell.out is not sys.__stdout__:
        return asyncio.run(_run_checks(arguments, shell))
    here, (told, tell) = os.getpid(), os.pipe()
    os.set_blocking(told, False)

    def work() -> Exit:
        try:
            return asyncio.run(_run_checks(arguments, shell))
        finally:
            os.write(tell, b".")

    shell.out.flush()
    code = run_guarded(work, leashed=False)
    if os.getpid() != here:
        return Exit(code)
    os.close(tell)
    with os.fdopen(told, "rb") as report:
        is_cut_short = not report.read(1)
    if is_cut_short:
        raise RunError(
            f"'{arguments.target}' ended the process that it was checked in, with exit status {code}: let its code "
            "raise an exception, and call neither exit() nor os._exit()"
        )
    return Exit(code)


async def _run_checks(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..envs.clients.supervise import ServeCommand
    from ..envs.conformance import CHECKS, Subject, run_checks
    from ..envs.releases import released_ids

    inline = not is_address(arguments.target)
    command = ServeCommand(env=arguments.target, options=read_target_options(arguments)) if inline else None
    client = await open_target(arguments)
    try:
        subject = Subject(
            client=client,
            command=command,
            num_tasks=arguments.tasks,
            tasks=tuple(arguments.task),
            expert_share=arguments.expert,
            varying=tuple(arguments.varying),
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
    parser.add_argument(
        "--browser", action="store_true", help="play on a page in a browser, with pictures if there are"
    )
    parser.add_argument("--no-open", action="store_true", help="with --browser, print the address and open nothing")
    parser.add_argument(
        "--port", type=int, metavar="N", help="with --browser, of its server (default: one that is free)"
    )
    parser.add_argument("--save", metavar="FOLDER", help="where what is played is saved, to view or to imitate")
    parser.add_argument(
        "--format",
        choices=("react", "plain", "code", "tools"),
        default="react",
        help="of replies in what is saved: that of the agent which is to imitate them (default: react)",
    )


async def _play(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from .invocation.playing import play_at_terminal, play_in_browser

    is_given = arguments.port is not None or arguments.no_open
    if is_given and not arguments.browser:
        raise UsageError("--port and --no-open go with --browser")
    return await (play_in_browser if arguments.browser else play_at_terminal)(arguments, shell)


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
    from ..envs.scaffold import find_name_error, package_name, write_package

    name = arguments.name
    taken = f"the folder '{name}' is there already; nothing was written"
    if (shell.cwd / name).exists():
        raise UsageError(taken)
    package = package_name(name)
    problem = find_name_error(package, catalog().environments)
    if problem is not None:
        raise UsageError(f"'{name[:40]}' cannot be the name of a new environment: {problem}")
    try:
        written = write_package(package, shell.cwd / name)
    except FileExistsError:
        raise UsageError(taken) from None
    except OSError as error:
        raise UsageError(f"the folder '{name}' cannot be written: {(error.strerror or str(error)).lower()}") from error
    shell.out.write("".join(f"wrote {name}/{file}\n" for file in written))
    shell.out.write(f"next: cd {name}; agym envs check ./{package}; agym run recipe.yaml\n")
    return Exit.RIGHT


# --- install -------------------------------------------------------------------------------------------------------


def _add_install(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ecosystem", choices=("verifiers",), help="whose environment it is")
    parser.add_argument("name", metavar="NAME", help="module of the environment, up to its first dot")
    parser.add_argument("package", nargs="*", metavar="PACKAGE", help="what pip installs (default: NAME)")


def _install(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ..envs.errors import BadOption, EnvError
    from ..envs.verifiers.folders import install

    shell.err.write(f"installing {', '.join(arguments.package or [arguments.name])}; this takes minutes\n")
    try:
        folder = install(arguments.name, arguments.package, shell.environ)
    except BadOption as error:
        raise UsageError(str(error)) from error
    except (EnvError, OSError) as error:
        shell.err.write(f"error: {error}\n")
        return Exit.RUN_FAILED
    shell.out.write(f"installed in {folder}; its versions are in {folder / 'pins.txt'}\n")
    return Exit.RIGHT


# --- targets -------------------------------------------------------------------------------------------------------


def _add_target(parser: argparse.ArgumentParser) -> None:
    from ..envs.serving.arguments import token_in

    parser.add_argument(
        "target", metavar="TARGET", help="an environment's name, its folder as in ./my_env, or the URL of a server"
    )
    parser.add_argument("--options", default="{}", metavar="JSON", help="options of the environment")
    parser.add_argument("--dialect", choices=("native", "agentgym", "openenv"), default="native", help="of the server")
    parser.add_argument("--kind", help="AgentGym environment that the server serves")
    parser.add_argument(
        "--token-file", type=token_in, dest="token", metavar="FILE", help="file with the server's bearer token"
    )


_Run = Callable[[argparse.Namespace, Shell], Exit | Coroutine[None, None, Exit]]
_ACTIONS: Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None], _Run]] = {
    "list": ("list the environments, or the splits and options of one", _add_list, _list),
    "check": ("run the conformance checks on an environment", _add_check, _check),
    "play": ("play an episode at the terminal, or in a browser", _add_play, _play),
    "serve": ("serve environments over HTTP", _add_serve, _serve),
    "new": ("begin a package with an environment of your own", _add_new, _new),
    "install": ("install an environment of another ecosystem in a folder of its own", _add_install, _install),
}
