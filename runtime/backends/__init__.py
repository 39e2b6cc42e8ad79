"""Engines behind the protocols of `protocols.py`; each is imported by its own file alone, and only when it is built.

vLLM for a CPU requires torchvision, torchaudio and torchcodec, of which the package index has CUDA builds only. They
cannot be loaded with torch's CPU build, and vLLM and transformers fail as soon as they try. Agents need none of them,
so this module hides them from Python before either is imported, as if they were not installed.
"""

import sys
from importlib.metadata import PackageNotFoundError, version

_MEDIA = ("torchaudio", "torchcodec", "torchvision")
_CPU_BUILD = "+cpu"


def _has_cpu_build(package: str) -> bool:
    try:
        return version(package).endswith(_CPU_BUILD)
    except PackageNotFoundError:
        return False


if _has_cpu_build("torch"):
    for _package in _MEDIA:
        if _package not in sys.modules and not _has_cpu_build(_package):
            sys.modules[_package] = None  # type: ignore[assignment]
