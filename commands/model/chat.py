"""`agym chat MODEL`: a chat with a model at the terminal. Ctrl-C ends a reply, Ctrl-D the chat."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ...catalog import catalog
from ..invocation.engines import check_model_folder
from ..invocation.shell import Exit, Shell, UsageError

__all__ = ["add_arguments", "converse", "read_system_prompt", "run"]

Reply = Callable[[Sequence[Mapping[str, str]]], Iterable[str]]
"""From a conversation to the pieces of the next reply."""
_SYSTEM = re.compile(r"^## System prompt\n\n(`{3,})\n(.*?)\n\1$", re.MULTILINE | re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters with which a model could change the terminal's state."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model folder, a name of 'agym models list', or a hub id")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--system", metavar="TEXT", help="a system prompt")
    how.add_argument("--card", action="store_true", help="use the system prompt of the model card of an export")
    parser.add_argument("--tokens", type=int, default=512, metavar="N", help="longest reply (default: 512)")
    parser.add_argument("--temperature", type=float, default=0.7, metavar="T", help="0 is greedy (default: 0.7)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of what is drawn (default: 0)")


def run(arguments: argparse.Namespace, shell: Shell) -> Exit:
    if arguments.tokens < 1 or not 0 <= arguments.temperature < float("inf"):
        raise UsageError("--tokens must be at least 1, and --temperature at least 0")
    from ...dsl.model.recipe import Model
    from ...runtime.storage.run_reader import is_run
    from ...runtime.workers.build import find_model

    given = shell.cwd / os.path.expanduser(arguments.model)
    if is_run(given):
        raise UsageError(f"'{arguments.model}' is the folder of a run: write its model with 'agym export' first")
    folder = Path(find_model(Model(path=str(given) if given.is_dir() else arguments.model)).path)
    system = read_system_prompt(folder) if arguments.card else arguments.system
    check_model_folder(folder, arguments.model)
    from ...runtime.pretrained.chat import ReplySettings, load_chat_model

    settings = ReplySettings(tokens=arguments.tokens, temperature=arguments.temperature, seed=arguments.seed)
    model = load_chat_model(folder, computes_bf16=catalog().computes_bf16())
    converse(lambda messages: model.reply(messages, settings), system, shell)
    return Exit.RIGHT


def read_system_prompt(folder: Path) -> str:
    card = folder / "README.md"
    found = _SYSTEM.search(card.read_text(encoding="utf-8")) if card.is_file() else None
    if found is None:
        raise UsageError(f"'{card}' holds no system prompt: give one with --system")
    return found[2]


def converse(reply: Reply, system: str | None, shell: Shell) -> None:
    """Read a line, write a reply, until the lines end or Ctrl-C is pressed between replies."""
    messages = [{"role": "system", "content": system}] if system is not None else []
    for line in _read_lines(shell):
        messages.append({"role": "user", "content": line})
        messages.append({"role": "assistant", "content": _show(reply(messages), shell)})


def _read_lines(shell: Shell) -> Iterator[str]:
    is_terminal = shell.stdin.isatty()
    while True:
        if is_terminal:
            shell.out.write("> ")
            shell.out.flush()
        try:
            line = shell.stdin.readline()
        except KeyboardInterrupt:
            line = b""
        if not line:
            break
        if text := line.decode(errors="replace").strip():
            yield text
    if is_terminal:
        shell.out.write("\n")


def _show(pieces: Iterable[str], shell: Shell) -> str:
    """Write a reply as it arrives; Ctrl-C keeps what has arrived."""
    text = ""
    try:
        for piece in pieces:
            text += piece
            shell.out.write(_CONTROL.sub("", piece))
            shell.out.flush()
    except KeyboardInterrupt:
        pass
    shell.out.write("\n")
    shell.out.flush()
    return text
