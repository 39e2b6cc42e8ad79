"""What a process must be started with."""

from __future__ import annotations

import os
import subprocess
import sys

from agym.runtime.backends.engine_variables import missing_variables


def test_process_that_was_started_with_all_of_it_lacks_nothing():
    first = missing_variables({}, threads=2, cpu=True)
    assert first["OMP_NUM_THREADS"] == "2"
    assert missing_variables(first, threads=2, cpu=True) == {}


def test_what_a_user_has_set_stays():
    missing = missing_variables({"OMP_NUM_THREADS": "7", "VLLM_LOGGING_LEVEL": "DEBUG"}, threads=1, cpu=True)
    assert not {"OMP_NUM_THREADS", "VLLM_LOGGING_LEVEL"} & set(missing)


def test_libraries_that_are_preloaded_already_stay_behind_ours():
    preload = missing_variables({"LD_PRELOAD": "/lib/mine.so"}, threads=1, cpu=True)["LD_PRELOAD"]
    assert preload.endswith("libiomp5.so:/lib/mine.so")


def test_on_a_gpu_nothing_of_a_cpu_is_set():
    missing = missing_variables({}, threads=1, cpu=False)
    assert not {"LD_PRELOAD", "TORCHDYNAMO_DISABLE", "DS_ACCELERATOR", "MALLOC_ARENA_MAX"} & set(missing)


def test_a_process_started_with_it_loads_the_openmp_runtime():
    environ = {**os.environ, **missing_variables(os.environ, threads=1, cpu=True)}
    maps = subprocess.run(
        [sys.executable, "-c", "print(open('/proc/self/maps').read())"], env=environ, capture_output=True, check=True
    )
    assert b"libiomp5" in maps.stdout
    assert maps.stderr == b""
