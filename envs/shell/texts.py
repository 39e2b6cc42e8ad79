"""Texts for the agent: the guide, and the outcome of a command."""

from __future__ import annotations

import re

from .tasks import WORK
from .terminal import Result

__all__ = ["DONE", "PROMPT", "PROMPT_OF_FOLDERS", "show_result"]

DONE = "done"
PROMPT = f"""You work in a terminal, in the folder {WORK}. Each turn, give one command for bash and nothing else; you \
see what it prints. Folder and variables are kept from one command to the next. There is no network, and nobody to \
answer a program's questions. When the task is solved, write {DONE}."""
PROMPT_OF_FOLDERS = PROMPT.replace(f", in the folder {WORK}", "")
"""The guide where each task says its folder."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LIMITS = {
    "time": "The command was ended: it took too long.",
    "memory": "The command was ended: it took too much memory.",
    "output": "The command was ended: it printed too much.",
}


def show_result(result: Result) -> str:
    """The output as plain text, then whatever was out of the ordinary."""
    head, tail = (_plain(part) for part in (result.output[: result.head], result.output[result.head :]))
    gap = f"\n[{result.left_out} bytes left out]\n" if result.left_out else ""
    lines = [f"{head}{gap}{tail}".strip("\n")]
    if result.ended in _LIMITS:
        lines.append(_LIMITS[result.ended])
    elif result.code:
        lines.append(f"[exit code {result.code}]")
    return "\n".join(line for line in lines if line) or "(no output)"


def _plain(data: bytes) -> str:
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return _CONTROLS.sub("", _ESCAPES.sub("", text))
