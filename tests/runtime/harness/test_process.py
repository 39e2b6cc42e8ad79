"""A process per episode: what it says, what it may not do, and that nothing of it is left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from agym.dsl.model.recipe import HarnessLimits
from agym.runtime.harness.process import ProcessEnd, run_process

from .conftest import left_behind

pytestmark = pytest.mark.slow

MARK = f"agym-harness-test-mark-{os.getpid()}"
"""Of this process: another one may run the same tests at the same time."""


def play(program: str, *, timeout_s: float = 60.0, log_bytes: int = 4096, **limits: Any) -> ProcessEnd:
    return asyncio.run(
        run_process(
            [sys.executable, "-c", program, MARK],
            b'{"task": 1}',
            environ=os.environ,
            variables={"OPENAI_API_KEY": "k"},
            limits=HarnessLimits(**limits),
            timeout_s=timeout_s,
            log_bytes=log_bytes,
        )
    )


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert left_behind(MARK) == []


def test_a_task_comes_by_standard_input_and_a_result_by_standard_output() -> None:
    end = play("import sys, os; print(sys.stdin.read()); print('note', file=sys.stderr); open('x', 'w')")
    assert (end.result, end.log, end.trouble) == (b'{"task": 1}\n', "note\n", "")


def test_it_sees_its_own_variables_and_no_others() -> None:
    end = play("import os; print(sorted(set(os.environ) - {'LC_CTYPE'}))")
    assert b"OPENAI_API_KEY" in end.result
    assert b"TOKEN" not in end.result
    assert not any(name.encode() in end.result for name in os.environ if name.startswith(("PYTEST", "VLLM")))


TROUBLES = {
    "raise SystemExit(3)": "exit code 3",
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)": "SIGSEGV",
    "while True: print('x' * 1000)": "result exceeds",
    "import sys\nwhile True:\n  print('x' * 1000, file=sys.stderr)": "log exceeds",
    "b = []\nwhile True: b.append(bytearray(2**20))": "",
    "import os, time\nwhile os.fork(): pass\ntime.sleep(600)": "more processes",
}


@pytest.mark.parametrize("program", TROUBLES)
def test_what_it_may_not_do_is_its_trouble(program: str) -> None:
    end = play(program, output_kb=64, processes=8, memory_mb=256)
    assert TROUBLES[program] in end.trouble
    assert end.trouble


def test_one_that_hangs_is_ended_with_all_that_it_started() -> None:
    end = play(
        "import subprocess, sys, time, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]]\n"
        "subprocess.Popen(sleep, start_new_session=True)\n"
        "time.sleep(600)",
        timeout_s=2.0,
    )
    assert end.expired
    assert "did not end" in end.trouble


def test_what_it_leaves_in_the_background_ends_with_it() -> None:
    end = play(
        "import subprocess, sys\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]]\n"
        "subprocess.Popen(sleep, start_new_session=True)"
    )
    assert end.trouble == ""


def test_one_that_ends_its_guard_is_ended_too() -> None:
    end = play("import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)")
    assert "guard" in end.trouble


def test_of_a_long_log_beginning_and_end_are_kept() -> None:
    end = play("import sys; sys.stderr.write('a' * 4000 + 'b' * 4000)", log_bytes=100)
    assert end.log.startswith("a" * 50 + "\n[7900 bytes are left out]\n")
    assert end.log.endswith("b" * 50)


def test_a_command_that_is_not_there_says_so() -> None:
    async def start() -> ProcessEnd:
        return await run_process(
            ["no-such-program"],
            b"{}",
            environ=os.environ,
            variables={},
            limits=HarnessLimits(),
            timeout_s=60,
            log_bytes=4096,
        )

    end = asyncio.run(start())
    assert "exit code 127" in end.trouble
    assert "cannot start 'no-such-program'" in end.log
