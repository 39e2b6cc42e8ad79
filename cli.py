"""The command line: arguments, one call, an exit code. `agym --help` imports no command."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from .commands import COMMANDS
from .commands.invocation.parser import build_parser, import_command
from .commands.invocation.shell import Exit, Shell, UsageError, WrongRecipe
from .runtime.errors import RunError, explain_shortage

__all__ = ["entry", "main"]

LINE_WIDTH = 120


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. Errors go to standard error."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words, os.environ)
    except KeyboardInterrupt:
        print("agym: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return Exit.BROKEN_PIPE
    except Exception as fault:
        if os.environ.get("AGYM_DEBUG") == "1":
            raise
        return _report_internal_error(fault)


def entry() -> NoReturn:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal without Unicode, and file names that are not text, are no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        code = main()
    except KeyboardInterrupt:  # another interrupt, while the first was being reported
        code = Exit.INTERRUPTED
    # from here on the system ends the process, without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # at exit the interpreter would collect garbage among all that the engines imported, for three seconds
    gc.freeze()
    sys.exit(code)


def _run(words: list[str], environ: Mapping[str, str]) -> int:
    try:
        arguments = build_parser(set(words) & COMMANDS.keys()).parse_args(words or ["--help"])
        code = int(import_command(arguments.command).run(arguments, _shell(environ)))
    except SystemExit as stop:
        code = int(stop.code or 0)
    except (UsageError, RunError) as error:
        print(f"agym {arguments.command}: error: {error}", file=sys.stderr)
        code = Exit.USAGE if isinstance(error, UsageError) else Exit.RUN_FAILED
    except ModuleNotFoundError as error:
        from .commands.invocation.requirements import explain_missing_module

        advice = explain_missing_module(error)
        if advice is None:
            raise
        print(f"agym {arguments.command}: error: {advice}", file=sys.stderr)
        code = Exit.USAGE
    except WrongRecipe:
        code = Exit.WRONG
    except (MemoryError, OSError) as error:
        advice = explain_shortage(error)
        if advice is None:
            raise
        print(f"agym {arguments.command}: error: {advice}", file=sys.stderr)
        code = Exit.RUN_FAILED
    # here, where a broken pipe is still caught
    sys.stdout.flush()
    return code


def _shell(environ: Mapping[str, str]) -> Shell:
    is_terminal = sys.stdout.isatty()
    return Shell(
        stdin=sys.stdin.buffer,
        out=sys.stdout,
        err=sys.stderr,
        cwd=Path.cwd(),
        environ=environ,
        width=shutil.get_terminal_size((LINE_WIDTH, 24)).columns if is_terminal else LINE_WIDTH,
        colour=is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb",
    )


def _report_internal_error(fault: Exception) -> int:
    first_line = str(fault).split("\n", 1)[0][:200]
    print(
        f"agym: internal error: {type(fault).__name__}: {first_line}; please report it with what the same command "
        "prints under AGYM_DEBUG=1",
        file=sys.stderr,
    )
    return Exit.INTERNAL


def _discard_output() -> None:
    """Discard what is still buffered: it must not fail again when the interpreter closes the stream."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    entry()
