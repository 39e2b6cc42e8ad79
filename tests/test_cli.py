"""The command line as a whole: what there is, exit codes, and that a user's mistake is never a traceback."""

import io
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from errno import EMFILE, ENOSPC
from pathlib import Path

import pytest
from agym import __version__
from agym.cli import main
from agym.commands import COMMANDS
from agym.commands.invocation.parser import build_parser, import_command
from agym.commands.invocation.shell import Exit

from .conftest import Agym

# Edited by hand whenever something is added: what people's scripts rely on.
OPTIONS = {
    "run": {
        "recipe",
        "--set",
        "--run",
        "--resume",
        "--fresh",
        "--on",
        "--job-file",
        "--job-option",
        "--dry-run",
    },
    "eval": {
        "target",
        "--checkpoint",
        "--model",
        "-k",
        "--samples",
        "--temperature",
        "--turns",
        "--limit",
        "--set",
        "--run",
        "--output",
        "--episodes",
    },
    "view": {
        "runs",
        "--port",
        "--no-browser",
        "--text",
        "--task",
        "--step",
        "--where",
        "--words",
        "--tag",
        "--add-tag",
        "--remove-tag",
        "--replay",
        "--export",
        "--limit",
    },
    "report": {"runs", "-o", "--output"},
    "export": {"run", "output", "--checkpoint", "--trust-remote-code"},
    "chat": {"model", "--system", "--card", "--tokens", "--temperature", "--seed"},
    "serve": {"model", "--checkpoint", "--port", "--key", "--context"},
    "validate": {"paths", "--format", "--set", "--strict", "--dependents", "--quiet", "-q"},
    "plan": {"recipe", "--format", "--set", "--run", "--simulate"},
    "show": {"recipe", "--format", "--set", "--run", "--origins", "--diff"},
    "schema": {"name", "--field"},
    "recipes": {"--format", "--bases"},
    "new": {"name", "--from", "--force"},
    "envs": {"what"},
    "models": {"what"},
    "doctor": {"recipe", "--set", "--cluster", "--folder", "--format"},
    "completion": {"shell"},
}
EXIT_CODES = {
    "RIGHT": 0,
    "WRONG": 1,
    "USAGE": 2,
    "RUN_FAILED": 3,
    "STOPPED": 4,
    "INTERNAL": 70,
    "INTERRUPTED": 130,
    "BROKEN_PIPE": 141,
}


def test_commands_and_their_options_are_those_that_were_promised() -> None:
    top = build_parser(COMMANDS)
    (commands,) = [each for each in top._actions if each.choices]
    found = {
        name: {word for action in one._actions for word in (action.option_strings or [action.dest])} - {"-h", "--help"}
        for name, one in dict(commands.choices or {}).items()
    }
    assert found == OPTIONS
    assert list(COMMANDS) == list(OPTIONS)


def test_exit_codes_are_those_that_were_promised() -> None:
    assert {code.name: code.value for code in Exit} == EXIT_CODES


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_takes(agym: Agym, name: str) -> None:
    called = agym(name, "--help")
    assert called.code == 0
    assert called.out.startswith(f"usage: agym {name}")
    assert COMMANDS[name][1:] in called.out


def test_help_lists_every_command_and_the_exit_codes(agym: Agym) -> None:
    called = agym("--help")
    assert called.code == 0
    assert all(summary in called.out for summary in COMMANDS.values())
    assert "exit codes: 0 success, 1 wrong recipe, 2 wrong usage" in called.out


def test_without_a_command_it_prints_its_help(agym: Agym) -> None:
    assert agym() == agym("--help")


def test_version_is_that_of_the_package(agym: Agym) -> None:
    assert agym("--version").out == f"agym {__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("validte",), "did you mean 'validate'?"),
        (("plan",), "required"),
        (("plan", "quickstart", "--format", "tre"), "did you mean 'tree'?"),
        (("plan", "quickstart", "--no-such-option"), "--no-such-option"),
        (("plan", "quickstart", "--seed", "3"), "--set seed=3\n"),
        (("plan", "quickstart", "algorithm.lr=1e-3"), "--set algorithm.lr=1e-3\n"),
        (("plan", "quickstart", "b.yaml", "c.yaml"), "arguments: b.yaml c.yaml\n"),
        (("plan", "quickstart", "--run", "first"), "invalid int value"),
        (("schema", "recip"), "did you mean 'recipe'?"),
    ],
)
def test_a_wrong_command_line_is_told_in_two_lines_with_code_2(agym: Agym, words: tuple[str, ...], said: str) -> None:
    called = agym(*words)
    assert (called.code, called.out) == (2, "")
    assert said in called.err
    assert len(called.err.splitlines()) == 2


def test_options_are_not_guessed_from_their_beginning(agym: Agym) -> None:
    assert agym("validate", "quickstart", "--form", "json").code == 2


# --- what must never be a traceback --------------------------------------------------------------------------------


class Closed(io.StringIO):
    """A stream whose reader is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def fileno(self) -> int:
        return self.spare

    def __init__(self, spare: int) -> None:
        super().__init__()
        self.spare = spare


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    err = io.StringIO()
    with open(tmp_path / "spare", "w") as spare, redirect_stdout(Closed(spare.fileno())), redirect_stderr(err):
        assert main(["recipes"]) == 141
    assert err.getvalue() == ""


class Interrupting(io.StringIO):
    """A stream at which the user presses Ctrl-C."""

    def write(self, text: str) -> int:
        raise KeyboardInterrupt


def test_ctrl_c_ends_with_one_line() -> None:
    err = io.StringIO()
    with redirect_stdout(Interrupting()), redirect_stderr(err):
        assert main(["recipes"]) == 130
    assert err.getvalue() == "agym: interrupted\n"


class Short(io.StringIO):
    """Stands for a machine that is short of something."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "not enough memory: free memory, or use a smaller model"),
        (OSError(EMFILE, "Too many open files", "x"), "'x': Too many open files: raise the limit of open files, for"),
        (OSError(ENOSPC, "No space left on device"), "No space left on device: free space on that disk"),
    ],
)
def test_a_shortage_is_one_line_that_says_what_to_do(error: Exception, words: str) -> None:
    err = io.StringIO()
    with redirect_stdout(Short(error)), redirect_stderr(err):
        assert main(["recipes"]) == 3
    assert err.getvalue().startswith(f"agym recipes: error: {words}")
    assert err.getvalue().count("\n") == 1


class Faulty(io.StringIO):
    """Stands for a fault of our own."""

    def write(self, text: str) -> int:
        raise ZeroDivisionError("no such\nluck")


def test_a_fault_of_our_own_is_one_line_that_says_how_to_report_it() -> None:
    err = io.StringIO()
    with redirect_stdout(Faulty()), redirect_stderr(err):
        assert main(["recipes"]) == 70
    assert err.getvalue() == (
        "agym: internal error: ZeroDivisionError: no such; please report it with what the same command prints under "
        "AGYM_DEBUG=1\n"
    )


def process(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agym", *words],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environ},
        check=False,
        timeout=60,
    )


FAULT = "import agym.files; agym.files.shipped_names = None; import agym.cli; agym.cli.entry()"


def test_under_debug_a_fault_of_our_own_shows_its_traceback() -> None:
    command = [sys.executable, "-c", FAULT, "recipes"]
    quiet = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    loud = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "AGYM_DEBUG": "1"}
    )
    assert (quiet.returncode, "Traceback" in quiet.stderr) == (70, False)
    assert "Traceback" in loud.stderr


def test_output_that_the_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("agym: 1\nnäme: x\n", encoding="utf-8")
    called = process("validate", str(tmp_path / "a.yaml"), PYTHONIOENCODING="ascii")
    assert called.returncode == 1
    assert "n\\xe4me" in called.stdout


def test_the_module_and_the_console_script_are_the_same_command() -> None:
    assert process("--version").stdout == f"agym {__version__}\n"


def test_at_its_end_a_process_does_not_look_for_garbage_among_the_engines() -> None:
    code = "import atexit, gc, agym.cli; atexit.register(lambda: print(gc.get_freeze_count() > 0)); agym.cli.entry()"
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nTrue\n")


def test_a_pipe_that_closes_early_gives_no_traceback() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "agym", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.read(10)
        started.stdout.close()
        assert started.stderr.read() == b""
        assert started.wait(60) in (0, 141)


def test_an_interrupt_in_the_middle_gives_130(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "slow.yaml")
    with subprocess.Popen(
        [sys.executable, "-m", "agym", "validate", str(tmp_path / "slow.yaml")], stderr=subprocess.PIPE
    ) as started:
        assert started.stderr is not None
        # opens only once the process reads from the other end
        with open(tmp_path / "slow.yaml", "wb"):
            started.send_signal(signal.SIGINT)
            assert started.stderr.read() == b"agym: interrupted\n"
        assert started.wait(60) == 130


def test_modules_of_commands_take_arguments_and_run() -> None:
    for name in COMMANDS:
        assert set(import_command(name).__all__) >= {"add_arguments", "run"}
