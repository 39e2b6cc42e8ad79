"""What a Dockerfile puts into its image, as far as it can be made without one: copied files and plain commands."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .files import NeedsImage, read_files

__all__ = ["TESTERS", "THERE", "Image", "read_image"]

_DEFAULT_WORK = "/app"
"""The working folder of terminal-bench's own base images."""
_BASES = re.compile(
    r"(?:docker\.io/)?(?:library/)?(?:ubuntu|debian|bash|buildpack-deps|python)(?::[\w.-]+)?(?:@sha256:[0-9a-f]+)?"
    r"|ghcr\.io/laude-institute/t-bench/(?:ubuntu-[\w-]+|python-[\w-]+)(?::[\w.-]+)?(?:@sha256:[0-9a-f]+)?"
)
_TAKEN = ("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "logs", "opt", "proc", "root", "run")
_TAKEN_TOO = ("sbin", "solution", "sys", "tests", "tmp", "usr", "var")
_WORK = re.compile(r"/[A-Za-z0-9_][\w.-]{0,40}")
THERE = {
    *(
        "apt-utils",
        "asciinema",
        "bash",
        "ca-certificates",
        "coreutils",
        "curl",
        "diffutils",
        "findutils",
        "gawk",
        "git",
    ),
    *("grep", "gzip", "locales", "mawk", "procps", "python3", "python3-pip", "python3-venv", "sed", "tar", "tmux"),
    *("tzdata", "wget", "python-is-python3"),
}
"""Packages that are here already, or that only serve onlookers, or a network that is not there."""
_RUNS = {
    *("[", "cat", "cd", "chmod", "cp", "cut", "dd", "echo", "find", "git", "grep", "head", "ln", "ls", "mkdir", "mv"),
    *("printf", "pwd", "python3", "rm", "sed", "seq", "set", "sort", "tail", "tar", "test", "touch", "tr", "true"),
}
"""Programs that a jail has; they write only where it lets them."""
TESTERS = re.compile(r"(?:pytest|pytest-json-ctrf|uv|pip|setuptools|wheel)(?:[=<>~!\[].*)?")
"""What tests are run by."""
_IGNORED = ("LABEL", "MAINTAINER", "EXPOSE", "SHELL", "STOPSIGNAL")
_WAITS = {"bash", "sh", "/bin/bash", "/bin/sh", "sleep", "tail", "-c", "-f", "/dev/null", "infinity"}
_HARMLESS = re.compile(
    r"(?:DEBIAN_FRONTEND|LANG|LC_ALL|TZ|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PIP_\w+|UV_\w+|TERM)"
)
_ARCHIVE = re.compile(r"\.(?:tar|tgz|tbz2?|txz|gz|bz2|xz|zst)(?:\.|$)")
_PREPARE = ("update", "install", "upgrade", "clean", "autoremove")
_ELSEWHERE = re.compile(r"://|git@|^~|\$\{?HOME\b")


@dataclass(slots=True, kw_only=True)
class Image:
    """A working folder, the files in it, and commands that are run there before the agent comes."""

    work: str = _DEFAULT_WORK
    files: dict[str, bytes] = field(default_factory=dict)
    """By path below the working folder."""
    commands: list[str] = field(default_factory=list)
    begun: bool = False
    """A base image was named."""
    placed: bool = False
    """The working folder was named."""
    settled: bool = False
    """Commands have used what was copied."""
    hidden: Sequence[str] = ()
    """What an agent must not see, by names at the top of the folder that files are copied from."""


def read_image(text: str, context: Path, hidden: Sequence[str] = ()) -> Image:
    """What a Dockerfile makes with the files in its folder; `NeedsImage` where that is not all."""
    if os.path.lexists(context / ".dockerignore"):
        raise NeedsImage("its image leaves out what .dockerignore names")
    image = Image(hidden=hidden)
    for word, rest in _instructions(text):
        if word in _IGNORED:
            continue
        if word not in _INSTRUCTIONS:
            raise NeedsImage(f"its Dockerfile has {word[:20]}")
        _INSTRUCTIONS[word](image, rest, context)
    if not (image.begun and image.placed):
        raise NeedsImage("its Dockerfile names no image or no working folder")
    return image


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    if re.search(r"<<-?\s*['\"]?\w", text):
        raise NeedsImage("its Dockerfile has text in place of files")
    plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\[ \t]*\n", " ", plain).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


def _from(image: Image, rest: str, context: Path) -> None:
    words = [word for word in rest.split() if not word.startswith("--")]
    if image.begun:
        raise NeedsImage("its image is built in several stages")
    if not words or not _BASES.fullmatch(words[0]):
        raise NeedsImage(f"its image is made from {(words or ['nothing'])[0][:80]}")
    image.begun, image.placed = True, words[0].startswith("ghcr.io/")


def _workdir(image: Image, rest: str, context: Path) -> None:
    work = posixpath.normpath(posixpath.join(image.work, rest.strip("\"'")))
    image.placed = True
    if work == image.work:
        return
    if image.files or image.commands or not _WORK.fullmatch(work) or work[1:] in {*_TAKEN, *_TAKEN_TOO}:
        raise NeedsImage(f"its working folder is {work[:80]}")
    image.work = work


def _copy(image: Image, rest: str, context: Path) -> None:
    words = _json_words(rest) or shlex.split(rest)
    flags, words = [each for each in words if each.startswith("--")], [each for each in words if each[:2] != "--"]
    if any(flag.startswith("--from") for flag in flags):
        raise NeedsImage("it copies files from another image")
    if odd := next((flag for flag in flags if not flag.startswith(("--chown", "--link"))), None):
        raise NeedsImage(f"it copies files with {odd[:40]}")
    if image.settled:
        raise NeedsImage("it copies files after it has run commands")
    if len(words) < 2 or any("$" in word or "://" in word for word in words):
        raise NeedsImage(f"its Dockerfile copies {rest[:60]}")
    *sources, target = words
    place = posixpath.normpath(posixpath.join(image.work, target))
    if place != image.work and not place.startswith(f"{image.work}/"):
        raise NeedsImage(f"it copies files to {target[:60]}, outside its working folder")
    below = posixpath.relpath(place, image.work)
    for source in sources:
        _copy_one(image, source, below, context, is_folder=target.endswith("/") or len(sources) > 1 or below == ".")


def _add(image: Image, rest: str, context: Path) -> None:
    if "://" not in rest and any(_ARCHIVE.search(word) for word in _json_words(rest) or rest.split()):
        raise NeedsImage(f"it unpacks {rest[:60]}")
    _copy(image, rest, context)


def _copy_one(image: Image, source: str, below: str, context: Path, *, is_folder: bool) -> None:
    """A folder gives what is in it, a file goes into a folder or becomes the target."""
    found, top = read_files(context, source), posixpath.normpath(source).lstrip("/").split("/")[0]
    if top in image.hidden:
        raise NeedsImage(f"it copies {source[:60]}, which the agent must not see")
    for path, data in found.items():
        if top in (".", "") and path.split("/")[0] in image.hidden:
            continue
        parts = (below, path) if path else (below, posixpath.basename(source)) if is_folder else (below,)
        image.files[posixpath.normpath(posixpath.join(*parts))] = data


def _run(image: Image, rest: str, context: Path) -> None:
    words = _json_words(rest)
    kept = [command for command in _commands(shlex.join(words) if words else rest) if _is_needed(command, image.work)]
    image.settled = image.settled or any(command[0] != "mkdir" for command in kept)
    # a folder that one instruction goes into is not the next one's
    image.commands += ["(\n" + "\n".join(" ".join(command) for command in kept) + "\n)"] if kept else []


def _commands(text: str) -> Iterator[list[str]]:
    """Commands that follow each other, as their words, quotes kept; `NeedsImage` where they are more than that."""
    lexer = shlex.shlex(text, posix=False, punctuation_chars=";&|()")
    lexer.whitespace_split, lexer.commenters = True, ""
    command = list[str]()
    try:
        words = list(lexer)
    except ValueError as error:
        raise NeedsImage(f"its Dockerfile runs {text[:60]}") from error
    for word in words:
        if word in ("&&", ";"):
            yield command
            command = []
        elif set(word) <= set(";&|()") or "`" in word or "$(" in word:
            raise NeedsImage(f"its Dockerfile runs {text[:60]}")
        else:
            command.append(word)
    yield command


def _is_needed(command: Sequence[str], work: str) -> bool:
    """Whether to run it here; not if it prepares a system that is there already."""
    if not command:
        return False
    program, words = command[0], [word for word in command[1:] if not word.startswith("-")]
    if program in ("apt-get", "apt"):
        return _installs(words, lambda name: name in THERE)
    if program in ("pip", "pip3", "uv"):
        return _installs(words[words[:1] == ["pip"] :], lambda name: bool(TESTERS.fullmatch(name)))
    if program == "rm" and all(word.startswith(("/var/", "/tmp/")) for word in words):
        return False
    if program not in _RUNS:
        raise NeedsImage(f"its Dockerfile runs {program[:40]}")
    if program == "python3" and {"-m", "pip", "venv", "ensurepip"} & {*command}:
        raise NeedsImage(f"its Dockerfile runs {' '.join(command)[:40]}")
    for word in command[1:]:
        if _ELSEWHERE.search(word) or not all(_is_inside(part.strip("\"'"), work) for part in re.split("[<>=]", word)):
            raise NeedsImage(f"its Dockerfile uses {word[:60]}, outside its working folder")
    return True


def _is_inside(word: str, work: str) -> bool:
    if ".." in word.split("/") or _ELSEWHERE.search(word):
        return False
    return not word.startswith("/") or word in (work, "/dev/null") or word.startswith(f"{work}/")


def _installs(words: Sequence[str], is_there: Callable[[str], bool]) -> bool:
    if words and words[0] not in _PREPARE:
        raise NeedsImage(f"its image runs {' '.join(words)[:40]}")
    names = words[1:] if words[:1] == ["install"] else ()
    missing = [name for name in names if not is_there(name.strip("\"'"))]
    if missing:
        raise NeedsImage(f"its image installs {missing[0][:40]}")
    return False


def _cmd(image: Image, rest: str, context: Path) -> None:
    words = _json_words(rest) or rest.split()
    if not set(words) <= _WAITS:
        raise NeedsImage(f"its image starts {rest[:60]}")


def _env(image: Image, rest: str, context: Path) -> None:
    words = shlex.split(rest)
    # the older form has one name, then its value
    names = [word.partition("=")[0] for word in words] if "=" in rest.split(" ")[0] else words[:1]
    if odd := next((name for name in names if not _HARMLESS.fullmatch(name)), None):
        raise NeedsImage(f"its image sets {odd[:40]}")


def _user(image: Image, rest: str, context: Path) -> None:
    if rest not in ("root", "0"):
        raise NeedsImage(f"its image has the user {rest[:40]}")


def _json_words(text: str) -> list[str]:
    """The words of the form in brackets; none of another."""
    try:
        found = json.loads(text) if text.startswith("[") else None
    except ValueError:
        return []
    return [str(each) for each in found] if isinstance(found, list) else []


_INSTRUCTIONS: Mapping[str, Callable[[Image, str, Path], None]] = {
    "FROM": _from,
    "WORKDIR": _workdir,
    "COPY": _copy,
    "ADD": _add,
    "ARG": _env,
    "RUN": _run,
    "CMD": _cmd,
    "ENTRYPOINT": _cmd,
    "ENV": _env,
    "USER": _user,
}
