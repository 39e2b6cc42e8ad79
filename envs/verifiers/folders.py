"""Where environments of the verifiers ecosystem are installed: a folder each, below the user's cache.

Each has an interpreter with packages of its own, `pins.txt` with the versions that pip resolved, and `installed.json`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadOption, EnvFault, NotInstalled

__all__ = ["FRAMEWORK", "Installed", "find_python", "folder_of", "install", "list_installed"]

FRAMEWORK = "verifiers>=0.1.9,!=0.2.*,!=0.3.*"
"""The lines that are spoken here; a package that asks for one of them gets it, any other the current one."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_RECORD, _PINS = "installed.json", "pins.txt"
_SHOWN = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    name: str
    packages: tuple[str, ...]
    """As they were asked for."""


def _base(environ: Mapping[str, str]) -> Path:
    given = environ.get("XDG_CACHE_HOME", "")
    home = Path(given) if given.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".cache"
    return home / "agym" / "verifiers"


def folder_of(environment: str, environ: Mapping[str, str]) -> Path:
    """The folder of an environment, there or not: its module's first name decides."""
    first = environment.partition(":")[0].partition(".")[0]
    return _base(environ) / first.replace("-", "_").lower()


def find_python(environment: str, environ: Mapping[str, str]) -> Path:
    folder = folder_of(environment, environ)
    if not (folder / _RECORD).is_file():
        raise NotInstalled(
            f"'{environment[:80]}' is not installed: run 'agym envs install verifiers {folder.name}', with the names of"
            " its packages after it if they are called otherwise"
        )
    return folder / "bin" / "python"


def list_installed(environ: Mapping[str, str]) -> Iterator[Installed]:
    for record in sorted(_base(environ).glob(f"*/{_RECORD}")):
        packages = json.loads(record.read_text("utf-8"))["packages"]
        yield Installed(name=record.parent.name, packages=tuple(packages))


def install(name: str, packages: Sequence[str], environ: Mapping[str, str]) -> Path:
    """Make the folder, by its pins if the same packages were installed before; return it."""
    if not _NAME.fullmatch(name):
        raise BadOption(f"'{name[:80]}' is no name of a module: expected one such as vf_wordle")
    folder, wanted = folder_of(name, environ), list(packages) or [name]
    pins, record = folder / _PINS, folder / _RECORD
    known = json.loads(record.read_text("utf-8"))["packages"] if record.is_file() else None
    arguments = ["-r", str(pins)] if known == wanted and pins.is_file() else [FRAMEWORK, *wanted]
    record.unlink(missing_ok=True)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    _run([str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *arguments], environ)
    pins.write_text(_run([str(python), "-m", "pip", "freeze", "--disable-pip-version-check"], environ), "utf-8")
    facts = {"packages": wanted, "python": sys.version.split()[0]}
    record.write_text(json.dumps(facts, indent=2) + "\n", "utf-8")
    return folder


def _run(command: Sequence[str], environ: Mapping[str, str]) -> str:
    done = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING")]
        raise EnvFault(f"pip could not install it: {' | '.join(lines[-4:])[-_SHOWN:]}")
    return done.stdout
