"""Checkpoints of version 0.1.0, which are pickles: read without running any code that they refer to.

torch's restricted unpickler builds tensors, numbers and containers, and of the rest only what is listed here.
"""

from __future__ import annotations

import pickle
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch

from ...errors import RunError

__all__ = ["RestrictedLoader", "load_pickle"]

_ALLOWED = (
    "deepspeed.runtime.fp16.loss_scaler.LossScaler",
    "deepspeed.runtime.zero.config.ZeroStageEnum",
    "deepspeed.utils.tensor_fragment.fragment_address",
)
"""Plain values of DeepSpeed's: a number, a word, two numbers."""


_DAMAGE = (OSError, EOFError, ValueError, RuntimeError, KeyError, IndexError, BadZipFile, pickle.UnpicklingError)
"""What a damaged file raises."""


def load_pickle(path: Path) -> Any:
    """Load a file of tensors; RunError names what the file refers to and must not."""
    try:
        refused = set(torch.serialization.get_unsafe_globals_in_checkpoint(path)) - {*_ALLOWED}
        if refused:
            raise RunError(f"'{path}' names '{min(refused)}', which no checkpoint of agym does: it was not loaded")
        with torch.serialization.safe_globals([_find(name) for name in _ALLOWED]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except _DAMAGE as error:
        raise RunError(f"'{path}' cannot be read: {str(error)[:200]}; resume from another checkpoint") from error


def _find(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


class RestrictedLoader:
    """Replaces the loader of an engine, which would run what a pickle refers to."""

    def load(self, path: str, map_location: object = None) -> Any:
        return load_pickle(Path(path))
