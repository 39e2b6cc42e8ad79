"""Completion scripts for bash, zsh and fish, with all words written out: no key press starts a program.

Where no words are known, the shell completes file names.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CommandSpec", "bash", "fish", "zsh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """A command and its arguments."""

    name: str
    summary: str
    options: Mapping[str, str]
    """Help text of every spelling of every option."""
    values: Mapping[str, tuple[str, ...]]
    """Options that take a value; the values where they are few."""
    words: tuple[str, ...]
    """Positional words; none where any file may stand."""
    files: bool


def _template(shell: str) -> str:
    return Path(__file__).with_name(f"completion.{shell}").read_text(encoding="utf-8")


# --- bash ----------------------------------------------------------------------------------------------------------


def bash(commands: tuple[CommandSpec, ...]) -> str:
    names = [command.name for command in commands]
    return _template("bash").format(
        names="|".join(names),
        all_names=shlex.quote(" ".join((*names, "--help", "--version"))),
        values="\n".join(_bash_values(commands)),
        options="\n".join(_bash_case(f'"{each.name} -"*', each.options) for each in commands),
        words="\n".join(_bash_case(f'"{each.name} "*', each.words) for each in commands if each.words),
    )


def _bash_values(commands: Iterable[CommandSpec]) -> Iterator[str]:
    for command in commands:
        for option, values in command.values.items():
            # an option whose values are not known still keeps the words of its command from being offered
            reply = f"COMPREPLY=({_compgen(values)}); return" if values else "return"
            yield f'    "{command.name} {option}") {reply} ;;'


def _bash_case(pattern: str, words: Iterable[str]) -> str:
    return f"    {pattern}) COMPREPLY=({_compgen(words)}) ;;"


def _compgen(words: Iterable[str]) -> str:
    return f'$(compgen -W {shlex.quote(" ".join(words))} -- "$current")'


# --- zsh -----------------------------------------------------------------------------------------------------------


def zsh(commands: tuple[CommandSpec, ...]) -> str:
    names = (f"    {shlex.quote(f'{each.name}:{each.summary}')}" for each in commands)
    return _template("zsh").format(names="\n".join(names), cases="\n".join(map(_zsh_case, commands)))


def _zsh_case(command: CommandSpec) -> str:
    parts = [shlex.quote(part) for part in (*_zsh_options(command), *_zsh_words(command))]
    return f"    {command.name}) _arguments {' '.join(parts)} ;;"


def _zsh_options(command: CommandSpec) -> Iterator[str]:
    for option, text in command.options.items():
        escaped = text.replace("[", r"\[").replace("]", r"\]").replace(":", r"\:")
        values = command.values.get(option)
        what = "" if values is None else f":value:({' '.join(values)})" if values else ":value:_files"
        yield f"*{option}[{escaped}]{what}"


def _zsh_words(command: CommandSpec) -> Iterator[str]:
    if command.words:
        yield f"1:word:({' '.join(command.words)})"
    elif command.files:
        yield "*:file:_files"


# --- fish ----------------------------------------------------------------------------------------------------------


def fish(commands: tuple[CommandSpec, ...]) -> str:
    lines = (line for command in commands for line in _fish(command))
    return "\n".join(("# fish completion of agym; to use it: agym completion fish | source", *lines, ""))


def _fish(command: CommandSpec) -> Iterator[str]:
    here = f"complete -c agym -n '__fish_seen_subcommand_from {command.name}'"
    yield f"complete -c agym -n __fish_use_subcommand -f -a {command.name} -d {_fish_text(command.summary)}"
    for option, text in command.options.items():
        kind = "-l" if option.startswith("--") else "-s"
        values = command.values.get(option)
        what = "" if values is None else f" -x -a {_fish_text(' '.join(values))}" if values else " -r"
        yield f"{here} {kind} {option.lstrip('-')}{what} -d {_fish_text(text)}"
    if command.words or not command.files:
        yield f"{here} -f" + (f" -a {_fish_text(' '.join(command.words))}" if command.words else "")


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
