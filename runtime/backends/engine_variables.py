"""Environment variables that the engines need before their process starts its first thread.

The dynamic linker and the OpenMP runtime read some of them when a process starts, so a process without them must start
once more: its owner does that (`os.execve`), or hands them to the processes that it starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

__all__ = ["missing_variables"]

_ALWAYS = {
    # the engine is stepped in the process that holds it
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
    # DeepSpeed insists on it, one process or many
    "LOCAL_RANK": "0",
}
_ON_A_CPU = {
    # else the first request for log-probs compiles for seconds what eager mode never needs
    "TORCHDYNAMO_DISABLE": "1",
    # else DeepSpeed looks for accelerators and says that it found none
    "DS_ACCELERATOR": "cpu",
    # an engine must not pin the threads of a process that it shares
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


def missing_variables(environ: Mapping[str, str], *, threads: int, cpu: bool) -> dict[str, str]:
    """Return the variables to add to `environ`; none in a process that was started with them."""
    variables = {"OMP_NUM_THREADS": str(threads), **_ALWAYS, **(_ON_A_CPU if cpu else {})}
    missing = {name: value for name, value in variables.items() if name not in environ}
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
