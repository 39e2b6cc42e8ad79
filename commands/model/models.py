"""`agym models list | get | path`: pretrained models that recipes name without a hub."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from ...dsl.suggest import did_you_mean
from ...runtime.pretrained.catalog import Pretrained, find_folder, is_there, list_pretrained, locate
from ..invocation.parser import Parser
from ..invocation.shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(dest="what", metavar="list | get | path", required=True, parser_class=Parser)
    for name, (summary, _) in _ACTIONS.items():
        one = ways.add_parser(
            name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.", allow_abbrev=False
        )
        if name != "list":
            one.add_argument("model", metavar="MODEL", help="a model that 'agym models list' shows")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    return _ACTIONS[arguments.what][1](arguments, shell)


def _list(_: argparse.Namespace, shell: Shell) -> Exit:
    for model in list_pretrained().values():
        state = "here" if is_there(model, locate(model, shell.environ)) else f"{model.wheel_bytes / 1e6:.0f} MB to get"
        shell.out.write(f"{model.name}  {state:<12}  {model.title} ({model.licence}, from {model.base_model})\n")
    return Exit.RIGHT


def _get(arguments: argparse.Namespace, shell: Shell) -> Exit:
    from ...runtime.pretrained.get import get

    def say(text: str) -> None:
        shell.err.write(f"agym models: {text}\n")
        shell.err.flush()

    shell.out.write(f"{get(_find(arguments.model), shell.environ, say)}\n")
    return Exit.RIGHT


def _path(arguments: argparse.Namespace, shell: Shell) -> Exit:
    shell.out.write(f"{find_folder(_find(arguments.model), shell.environ)}\n")
    return Exit.RIGHT


def _find(name: str) -> Pretrained:
    known = list_pretrained()
    if name not in known:
        raise UsageError(f"no model is called '{name[:40]}'; {did_you_mean(name, known)}")
    return known[name]


_ACTIONS: Mapping[str, tuple[str, Callable[[argparse.Namespace, Shell], Exit]]] = {
    "list": ("list pretrained models that need no hub", _list),
    "get": ("download a model, check it, and convert it into the cache", _get),
    "path": ("print the folder of a model that is here", _path),
}
