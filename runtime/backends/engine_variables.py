"""Environment variables that the engines need before their process starts its first thread.

The dynamic linker and the OpenMP runtime read some of them when a process starts, so a process without them must be
restarted: the caller does that (`os.execve`), or passes them to the processes that it starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from .registry import LEARNERS, SAMPLERS

__all__ = ["missing_variables"]

_ALWAYS = {"TORCH_CPP_LOG_LEVEL": "ERROR", "TOKENIZERS_PARALLELISM": "false"}
_ON_A_CPU = {
    # else the first request for log-probs compiles for seconds what eager mode never needs
    "TORCHDYNAMO_DISABLE": "1",
    # glibc gives each thread an arena and returns its end to the kernel at every chance: an engine that runs alongside
    # the threads of an actor then takes a tenth longer, faulting the same pages in again
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": str(2**28),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    # oneDNN and PyTorch each keep 1,024 kernels, and rows of new lengths need new ones: gigabytes over time
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
    "LRU_CACHE_CAPACITY": "256",
    # threads of an engine between two operations give up their core after 1 ms instead of Intel's 200: while episodes
    # are in environments of other processes, those need it
    "KMP_BLOCKTIME": "1",
}


def missing_variables(environ: Mapping[str, str], *, threads: int, cpu: bool) -> dict[str, str]:
    """Return the variables to add to `environ`; none in a process that was started with them."""
    needed = {"OMP_NUM_THREADS": str(threads), **_ALWAYS, **(_ON_A_CPU if cpu else {})}
    for backend in (*SAMPLERS.values(), *LEARNERS.values()):
        needed |= {**backend.variables, **(backend.cpu_variables if cpu else {})}
    missing = {name: value for name, value in needed.items() if name not in environ}
    preload = _find_openmp() if cpu else None
    loaded = environ.get("LD_PRELOAD", "")
    if preload is not None and "libiomp5" not in loaded:
        missing["LD_PRELOAD"] = f"{preload}:{loaded}" if loaded else str(preload)
    return missing


def _find_openmp() -> Path | None:
    """Find Intel's OpenMP runtime, where installed: with it the first generation takes half the time."""
    try:
        found = files("intel-openmp") or []
    except PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())).resolve() for file in found if file.name == "libiomp5.so")
    return next((path for path in paths if path.exists()), None)
