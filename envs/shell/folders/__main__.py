"""`python -m agym.envs.shell.folders FOLDER`: which tasks of a folder can be played here, and why others cannot."""

from __future__ import annotations

import sys
from pathlib import Path

from ...errors import BadOption
from .reader import show

__all__ = ["main"]


def main(words: list[str]) -> int:
    if len(words) != 1:
        print("usage: python -m agym.envs.shell.folders FOLDER", file=sys.stderr)
        return 2
    try:
        for line in show(Path(words[0])):
            print(line)
    except BadOption as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
