"""What this machine has: Python, cores, memory, cards, installed packages. Looks, and imports nothing it finds.

Enters: nothing. Leaves: a Machine. Every look may fail, and then says so rather than raise.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from .envs.web import BROWSERS
from .runtime.backends.registry import ENGINE_PACKAGES

__all__ = ["Card", "Machine", "installed", "look"]

CARD_QUERY = ("--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
CARD_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU."""

    name: str
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What was found."""

    python: str
    system: str
    cores: int
    """That this process may use."""
    memory_bytes: int | None
    fast_yaml: bool
    """Whether YAML is read by libyaml, in C."""
    packages: Mapping[str, str | None]
    """Engines by the name of their package; None where one is not installed."""
    browser: str | None
    """What environments on web pages drive."""
    cards: tuple[Card, ...]
    cards_note: str
    """Why there are no cards, or none that can be seen."""


def look() -> Machine:
    cards, note = _cards()
    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=_cores(),
        memory_bytes=_memory(),
        fast_yaml=_fast_yaml(),
        packages=installed(ENGINE_PACKAGES),
        browser=next(filter(None, map(shutil.which, BROWSERS)), None),
        cards=cards,
        cards_note=note,
    )


def installed(packages: Iterable[str]) -> Mapping[str, str | None]:
    """Versions by the metadata of the packages, which are not imported."""
    return {name: _version(name) for name in packages}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _fast_yaml() -> bool:
    import yaml

    return hasattr(yaml, "CLoader")


def _cards() -> tuple[tuple[Card, ...], str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return (), "no nvidia-smi"
    try:
        told = subprocess.run([tool, *CARD_QUERY], capture_output=True, text=True, timeout=CARD_TIMEOUT_S, check=True)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or error.stdout).strip().split("\n")[0]
        return (), f"nvidia-smi failed: {reason}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), f"nvidia-smi did not answer: {type(error).__name__}"
    cards = tuple(card_of(line) for line in told.stdout.splitlines() if line.strip())
    return cards, "" if cards else "nvidia-smi lists none"


def card_of(line: str) -> Card:
    """A line such as `NVIDIA H100 80GB HBM3, 81559`."""
    name, _, memory = line.rpartition(",")
    return Card(name=name.strip(), memory_mib=int(memory) if memory.strip().isdigit() else 0)
