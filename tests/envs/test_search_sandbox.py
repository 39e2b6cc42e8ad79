"""Programs that mean harm, run for real."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from agym.envs.search import create
from agym.envs.search.sandbox import Sandbox, explain_unavailable

pytestmark = pytest.mark.skipif(
    explain_unavailable() is not None, reason=f"no program can be run here: {explain_unavailable()}"
)

SANDBOX = Sandbox(wall_s=10.0)
RAW = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); print(libc.syscall({call}), ctypes.get_errno())"
"""Past everything that Python may refuse."""


# --- what it is for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "output"),
    [
        ("6 * 7", "42"),
        ("print(1)\nx = 'é' * 3\nx", "1\n'ééé'"),
        (
            "import statistics, datetime\nstatistics.mean([1, 2]), datetime.date(2020, 2, 29).isoformat()",
            "(1.5, '2020-02-29')",
        ),
        ("x = 1", "The program printed nothing."),
        ("", "The program printed nothing."),
        ("raise SystemExit(3)", "The program printed nothing."),
        ("1 / 0", 'File "program", line 1, in <module>\nZeroDivisionError: division by zero'),
        ("x = ", 'File "program", line 1\n    x = \n        ^\nSyntaxError: invalid syntax'),
        ("input()", 'File "program", line 1, in <module>\nEOFError: EOF when reading a line'),
    ],
)
def test_a_program_tells_what_it_printed_or_what_went_wrong(program: str, output: str) -> None:
    assert SANDBOX.run(program).rstrip() == output


@pytest.mark.parametrize("program", ["\ud800", "a\x00b", "\x02", "'\\x02'", "print('\\x02')"])
def test_a_strange_program_is_no_trouble(program: str) -> None:
    assert SANDBOX.run(program)


def test_the_same_program_prints_the_same_twice() -> None:
    program = "import random\nprint(random.random(), {'a', 'b', 'c', 'd'}, hash('x'))"
    assert SANDBOX.run(program) == SANDBOX.run(program)


# --- what it is against --------------------------------------------------------------------------------------------


REACHING = [
    "print(open('/etc/passwd').read())",
    "import os\nprint(os.listdir('/'))",
    "import os\nprint(os.stat('/etc'))",
    "import os\nos.chdir('..')",
    "import os\nprint(os.readlink('/proc/self/exe'))",
    "import io\nprint(io.FileIO('/proc/self/environ').read())",
    "import posix\nprint(posix.open('/etc/hostname', 0))",
    "open('x', 'w').write('x')",
    "import os\nos.mkdir('/tmp/x')",
    "import os\nos.remove('/etc/passwd')",
    "import os\nos.memfd_create('x')",
]


@pytest.mark.parametrize("program", REACHING)
def test_a_program_reaches_no_file(program: str) -> None:
    assert "PermissionError: [Errno 1]" in SANDBOX.run(program)


@pytest.mark.parametrize("name", ["socket", "subprocess", "multiprocessing", "urllib.request", "numpy", "agym"])
def test_a_program_imports_nothing_but_what_was_loaded_for_it(name: str) -> None:
    assert "ModuleNotFoundError" in SANDBOX.run(f"import {name}")


STARTING = [
    "import os\nos.fork()",
    "import os\nos.execv('/bin/sh', ['sh'])",
    "import os\nos.posix_spawn('/bin/sh', ['sh'], {})",
    "import os\nos.kill(-1, 9)",
    "import os\nos.kill(1, 9)",
    "import os\nos.setuid(0)",
    "import os\nos.nice(-5)",
]


@pytest.mark.parametrize("program", STARTING)
def test_a_program_starts_no_process_and_touches_no_other(program: str) -> None:
    assert "PermissionError: [Errno 1]" in SANDBOX.run(program)


def test_a_fork_bomb_goes_off_nowhere() -> None:
    before = jails()
    Sandbox(wall_s=1.0).run("import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass")
    left = jails() - before
    for _ in range(300):  # those of tests that run alongside this one come to their end
        if not left:
            break
        time.sleep(0.1)
        left &= jails()
    assert not left


def jails() -> set[str]:
    """Of the whole machine: a copy that got away would be called like the one that it is of."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found |= {folder.name} if b"/search/jail.py" in (folder / "cmdline").read_bytes() else set()
    return found


def test_a_program_starts_no_thread() -> None:
    assert "can't start new thread" in SANDBOX.run("import _thread\n_thread.start_new_thread(print, ())")


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("open", "2, b'/etc/passwd', 0"),
        ("openat", "257, -100, b'/etc/passwd', 0"),
        ("openat2", "437, -100, b'/etc/passwd', 0, 0"),
        ("socket", "41, 2, 1, 0"),
        ("clone", "56, 17, 0, 0, 0, 0"),
        ("fork", "57"),
        ("execve", "59, b'/bin/sh', 0, 0"),
        ("ptrace", "101, 16, 1, 0, 0"),
        ("mount", "165, b'x', b'/', b'tmpfs', 0, 0"),
        ("unshare", "272, 0x10000000"),
        ("prctl", "157, 22, 0, 0, 0"),
        ("setrlimit", "160, 9, 0"),
        ("prlimit64", "302, 0, 9, 0, 0"),
        ("memfd_create", "319, b'x', 0"),
        ("shmget", "29, 0, 1 << 30, 0o1666"),
        ("io_uring_setup", "425, 1, 0"),
        ("clone3", "435, 0, 0"),
        ("socket, numbered as in x32", "0x40000000 + 41, 2, 1, 0"),
    ],
)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls are numbered otherwise")
def test_the_kernel_refuses_what_python_cannot(what: str, call: str) -> None:
    assert SANDBOX.run(RAW.format(call=call)) == "-1 1"


@pytest.mark.parametrize(
    "program", ["'x' * 10**9", "x = []\nwhile True:\n    x.append('x' * 10**6)", "bytearray(2**40)"]
)
def test_memory_has_an_end(program: str) -> None:
    assert SANDBOX.run(program).endswith("MemoryError")


@pytest.mark.parametrize(
    "program",
    ["while True: pass", "import time; time.sleep(60)", "10 ** 10 ** 9", "print(1, flush=True)\nwhile 1: pass"],
)
def test_time_has_an_end(program: str) -> None:
    began = time.monotonic()
    assert Sandbox(wall_s=1.0).run(program).endswith("The program was stopped after 1 s.")
    assert time.monotonic() - began < 15


def test_output_has_an_end() -> None:
    told = SANDBOX.run("while True: print('x' * 100)")
    assert told.endswith("The output was longer, and the program was stopped.")
    assert len(told) < 4100


def test_a_crash_is_told_as_one() -> None:
    assert SANDBOX.run("import ctypes; ctypes.string_at(0)") == "The program crashed."


def test_nothing_of_this_process_is_handed_on(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("swordfish")
    with (tmp_path / "secret").open() as opened:
        os.set_inheritable(opened.fileno(), True)
        reading = "import os\nfor fd in range(3, 300):\n    try: print(os.read(fd, 99))\n    except OSError: pass"
        assert SANDBOX.run(reading) == "The program printed nothing."
    told = SANDBOX.run("import os; print(sorted(os.environ))")
    assert told == "['LC_CTYPE', 'PYTHONHASHSEED']"


def test_nothing_is_left_behind() -> None:
    fds, began = len(os.listdir("/proc/self/fd")), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    for program in ("1", "while True: pass", "print('x' * 10**6)"):
        Sandbox(wall_s=0.2).run(program)
    assert len(os.listdir("/proc/self/fd")) == fds
    # they were waited for
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime > began


# --- whoever runs it -----------------------------------------------------------------------------------------------

# it may read every file, as the interpreter may lie where only root can read
ORDINARY = (
    "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps +dac_read_search --ambient-caps +dac_read_search"
)
USERS = [
    pytest.param((), id="as one is"),
    pytest.param(
        tuple(ORDINARY.split()),
        id="as an ordinary user",
        marks=pytest.mark.skipif(
            os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root becomes somebody else"
        ),
    ),
]
RUNNING = """
import json, sys
from agym.envs.search.sandbox import Sandbox
print(json.dumps([Sandbox(wall_s=float(sys.argv[1])).run(program) for program in json.loads(sys.stdin.readline())]))
"""


def running(user: tuple[str, ...], *programs: str, wall_s: float) -> subprocess.Popen[str]:
    command = [*user, sys.executable, "-c", RUNNING, str(wall_s)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    print(json.dumps(programs), file=process.stdin, flush=True)
    return process


@pytest.mark.parametrize("user", USERS)
def test_whoever_runs_them_programs_work_and_are_held(user: tuple[str, ...]) -> None:
    hostile = [*REACHING[::3], *STARTING[::3]]
    with running(user, *hostile, "'x' * 10**9", "6 * 7", wall_s=10.0) as process:
        *told, memory, answer = json.loads(process.communicate()[0])
    assert ["PermissionError: [Errno 1]" in each for each in told] == [True] * len(hostile)
    assert memory.endswith("MemoryError")
    assert answer == "42"


@pytest.mark.parametrize("user", USERS)
def test_whoever_runs_it_a_program_is_without_host_network_and_rights(user: tuple[str, ...]) -> None:
    if subprocess.run(
        [*user, "unshare", *(() if os.geteuid() == 0 and not user else ("-U",)), "-n", "true"]
    ).returncode:
        pytest.skip("the kernel builds no second wall for this user")
    with running(user, "import time; time.sleep(60)", wall_s=2.0) as process:
        jail = jail_of(process.pid)
        assert {file.name for file in Path(f"/proc/{jail}/root").iterdir()} == {"0", "1", "2"}
        for name in ("net", "mnt", "ipc"):
            assert os.readlink(f"/proc/{jail}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")
        status = Path(f"/proc/{jail}/status").read_text()
        assert "Seccomp:\t2" in status
        assert f"CapEff:\t{0:016x}" in status
        assert f"CapPrm:\t{0:016x}" in status


@pytest.mark.parametrize("user", USERS)
def test_whoever_runs_it_a_program_ends_when_its_runner_is_killed(user: tuple[str, ...]) -> None:
    with running(user, "import time; time.sleep(60)", wall_s=60.0) as process:
        jail = Path(f"/proc/{jail_of(process.pid)}/cmdline")
        process.kill()
        for _ in range(100):
            if not jail.exists() or not jail.read_bytes():
                return
            time.sleep(0.05)
    pytest.fail("it runs still")


def jail_of(pid: int) -> int:
    """The process in which a program runs, once it is shut in."""
    for _ in range(300):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if "Seccomp:\t2" in Path(f"/proc/{child}/status").read_text():
                return int(child)
        time.sleep(0.05)
    raise AssertionError("no program was begun")


# --- as a tool -----------------------------------------------------------------------------------------------------


def test_the_agent_gets_what_its_program_printed() -> None:
    env = create({"tools": ["search", "python"]})
    env.reset(env.tasks("train")[0], 0)
    assert env.step("python sum(range(10))").observation.text == "45"
    assert env.step("python ```python\nx = 3\nprint(x)\n```").observation.text == "3"
    assert env.step("python 'x' * 10**12").observation.text.endswith("MemoryError")
    assert "python PROGRAM" in env.spec.prompt
