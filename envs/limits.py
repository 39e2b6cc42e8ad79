"""How much an environment may say at once: a longer text or answer is a fault, and is not read to its end."""

from __future__ import annotations

from .errors import EnvFault, FaultKind
from .protocol import Observation, Step

__all__ = ["MAX_ANSWER", "MAX_LIST", "MAX_OBSERVATION", "check_first", "check_step", "oversized"]

MAX_OBSERVATION = 1_048_576
"""Characters of an observation, and of all its valid actions together."""
MAX_ANSWER = 8 * 1_048_576
"""Bytes of a server's answer to one request, headers included."""
MAX_LIST = 64 * 1_048_576
"""Bytes of a list of tasks or words, which is asked for once; a million tasks have room."""


def check_first(observation: Observation, env: str) -> Observation:
    """Pass on an observation of this environment; raise a fault for one that is too long."""
    # what is not text at all is found by the player
    text = len(observation.text) if isinstance(observation.text, str) else 0
    for what, size in (
        ("observation", text),
        ("list of valid actions", sum(map(len, observation.valid_actions or ()))),
    ):
        if size > MAX_OBSERVATION:
            message = f"{env}: the {what} has {size:,} characters; at most {MAX_OBSERVATION:,} are accepted"
            raise EnvFault(message, kind=FaultKind.GARBAGE)
    return observation


def check_step(step: Step, env: str) -> Step:
    check_first(step.observation, env)
    return step


def oversized(env: str, request: str, limit: int = MAX_ANSWER) -> EnvFault:
    """The fault of a server whose answer is too long."""
    message = f"{env}: the answer to {request} is longer than {limit:,} bytes, the most that is accepted"
    return EnvFault(message, kind=FaultKind.GARBAGE)
