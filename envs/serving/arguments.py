"""The arguments of a server, for any parser; nothing that serves is imported here."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["add_arguments", "share", "token_in", "whole"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "env",
        nargs="+",
        metavar="ENV",
        help="an environment, or its folder as in ./my_env; several are each served below its name",
    )
    parser.add_argument("--options", default="{}", help="its options as JSON; of several, by their names")
    parser.add_argument(
        "--workers", type=whole(0), default=0, help="processes of their own to play in; 0 plays in this one"
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", type=whole(0, 65535), default=8200, help="0 takes any that is free (default: 8200)")
    parser.add_argument("--fd", type=whole(0), help="an inherited listening socket, in place of host and port")
    parser.add_argument("--leash", action="store_true", help="stop when standard input closes")
    parser.add_argument(
        "--token-file",
        type=token_in,
        dest="token",
        metavar="FILE",
        help="a file with the bearer token that clients must bring",
    )
    parser.add_argument("--max-sessions", type=whole(1), help="of each environment (default: 1024)")
    parser.add_argument(
        "--lease", type=_seconds, help="seconds until a session that nobody uses is closed (default: 600)"
    )
    parser.add_argument("--threads", type=whole(1), help="calls into an environment at the same time (default: 8)")
    parser.add_argument("--agentgym", metavar="FAMILY", help="whose shapes AgentGym's clients are answered in")


def token_in(file: str) -> str:
    # in the arguments themselves it could be read by every user of the machine
    try:
        token = Path(file).read_text("utf-8", errors="replace").strip()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot read '{file}': {error.strerror}") from error
    if not re.fullmatch("[!-~]+", token):
        raise argparse.ArgumentTypeError(f"expected a token of visible ASCII characters in '{file}'")
    return token


def whole(least: int, most: int = 1_000_000) -> Callable[[str], int]:
    def read(word: str) -> int:
        with suppress(ValueError):
            if least <= int(word) <= most:
                return int(word)
        raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, got '{word[:40]}'")

    return read


def share(word: str) -> float:
    with suppress(ValueError):
        if 0 <= float(word) <= 1:
            return float(word)
    raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got '{word[:40]}'")


def _seconds(word: str) -> float:
    with suppress(ValueError):
        if 1 <= float(word) < math.inf:
            return float(word)
    raise argparse.ArgumentTypeError(f"expected a number of seconds, at least 1, got '{word[:40]}'")
