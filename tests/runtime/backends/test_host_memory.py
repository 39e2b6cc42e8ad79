"""Memory that a learner keeps, over rows whose lengths keep changing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from agym.runtime.backends.engine_variables import missing_variables
from agym.runtime.backends.zero import host_memory

from .conftest import REAL

pytestmark = REAL

_LEARN = """
import ctypes, json, sys
from pathlib import Path
import numpy as np, torch
from agym.dsl.model.recipe import DType
from agym.runtime.backends.deepspeed import DeepSpeedLearner
from agym.runtime.protocols import LearnerSettings, TrainSequence, UpdateSettings

class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena a b c mapped d e used free keep".split()]

find = ctypes.CDLL(None).mallinfo2
find.restype = Mallinfo
torch.set_num_threads(1)
learner = DeepSpeedLearner(LearnerSettings(model=Path(sys.argv[1]), dtype=DType.BF16, zero=2))
used = []
for update in range(60):
    ids = np.arange(100 + 7 * update, dtype=np.int32) % 300
    ones = np.ones(len(ids), np.float32)
    sequence = TrainSequence(ids=ids, loss_mask=ids > 0, advantages=ones, old_logprobs=-ones)
    learner.update([sequence], UpdateSettings(lr=0.0))
    used.append(find().used)
print(json.dumps(used))
"""


def test_a_learner_keeps_no_more_with_each_new_length_of_a_row(model: Path) -> None:
    environ = {**os.environ, **missing_variables(os.environ, threads=1, cpu=True)}
    command = [sys.executable, "-c", _LEARN, str(model)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    used = json.loads(done.stdout.splitlines()[-1])
    assert used[-1] - used[24] < 30e6


@pytest.mark.parametrize(("free", "returned"), [(128 << 20, []), ((128 << 20) + 1, [0]), (None, [0])])
def test_freed_memory_is_returned_unless_it_is_known_to_be_little(
    free: int | None, returned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed: list[int] = []
    libc = SimpleNamespace(malloc_trim=trimmed.append)
    if free is not None:
        libc.mallinfo2 = lambda: SimpleNamespace(fordblks=free)
    monkeypatch.setattr(host_memory, "_find_glibc", lambda: libc)
    host_memory.return_freed_memory()
    assert trimmed == returned
