"""What a harness reports at its end, read strictly: its token counts must be those of the endpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from ...envs.errors import EnvFault, FaultKind
from ..policy_endpoint.policy import Usage

__all__ = ["HarnessResult", "load_result", "read_result"]

_KNOWN = ("answer", "score", "usage")


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessResult:
    answer: str | None = None
    """Taken as the last action in the environment, where its episode goes on."""
    score: float | None = None


def load_result(output: bytes) -> Mapping[str, Any]:
    """Load the last line of a process's output, or all of it; nothing is an empty result."""
    text = output.decode("utf-8", "replace").strip()
    for part in (text, text.rpartition("\n")[2]):
        try:
            loaded = json.loads(part) if part else {}
        except (ValueError, RecursionError):
            continue
        if isinstance(loaded, dict):
            return loaded
    raise _fault(f"its result is no JSON object: {text[-80:]!r}")


def read_result(given: Any, usage: Usage) -> HarnessResult:
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise _fault(f"its result is a {type(given).__name__}, no mapping")
    if unknown := [str(key) for key in given if key not in _KNOWN]:
        raise _fault(f"its result has '{unknown[0][:40]}', and a result has {', '.join(_KNOWN)} alone")
    answer, score = given.get("answer"), given.get("score")
    if answer is not None and not isinstance(answer, str):
        raise _fault("the 'answer' of its result is no text")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float) or not isfinite(score)):
        raise _fault("the 'score' of its result is no number")
    _check_usage(given.get("usage"), usage)
    return HarnessResult(answer=answer, score=None if score is None else float(score))


def _check_usage(said: Any, usage: Usage) -> None:
    counted = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    }
    if said is None:
        return
    if not isinstance(said, Mapping) or any(said.get(name, count) != count for name, count in counted.items()):
        raise _fault(f"it claims a usage of {str(said)[:80]}, and the endpoint counted {counted}")


def _fault(message: str) -> EnvFault:
    return EnvFault(message, kind=FaultKind.GARBAGE)
