"""Episodes as a run writes them, in folders of a few steps."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from agym.runtime.storage.episode_reader import EPISODES, TRAIN_LOG, compress_member


@lru_cache
def bench() -> ModuleType:
    """`bench/viewer.py`, which makes episodes."""
    file = Path(__file__).resolve().parents[2] / "bench" / "viewer.py"
    spec = importlib.util.spec_from_file_location("bench_viewer", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache
def lines_of(step: int) -> bytes:
    """The 256 training episodes of a step."""
    lines: bytes = bench().step_lines(step)
    return lines


def append(run: Path, step: int) -> None:
    with (run / EPISODES / TRAIN_LOG).open("ab") as file:
        file.write(compress_member(step, lines_of(step)))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two steps."""
    folder = tmp_path / "run"
    (folder / EPISODES).mkdir(parents=True)
    for step in (1, 2):
        append(folder, step)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


Found = Callable[..., list[dict[str, Any]]]
