"""The arguments of a server, for whoever parses them; nothing is imported here that serves."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_arguments"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("env", nargs="+", metavar="ENV", help="an environment; several are each served below its name")
    parser.add_argument("--options", default="{}", help="its options as JSON; of several, by their names")
    parser.add_argument("--workers", type=int, default=0, help="processes of their own to play in; 0 plays in this one")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8200, help="0 takes any that is free (default: 8200)")
    parser.add_argument("--fd", type=int, help="an inherited listening socket, in place of host and port")
    parser.add_argument("--leash", action="store_true", help="stop when standard input closes")
    parser.add_argument("--token-file", type=Path, help="a file with the bearer token that clients must bring")
    parser.add_argument("--max-sessions", type=int, help="of each environment (default: 1024)")
    parser.add_argument("--lease", type=float, help="seconds until a session that nobody uses is closed (default: 600)")
    parser.add_argument("--threads", type=int, help="calls into an environment at the same time (default: 8)")
    parser.add_argument("--agentgym", metavar="FAMILY", help="whose shapes AgentGym's clients are answered in")
