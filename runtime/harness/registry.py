"""Harnesses of installed packages: a coroutine by name, and what it is handed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from ..errors import RunError
from .session import HarnessSession

__all__ = ["GROUP", "Harness", "HarnessTask", "load_harness"]

GROUP = "agym.harnesses"


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessTask:
    """One episode, as a harness gets it."""

    base_url: str
    """Of the endpoint, for any client of OpenAI's API."""
    api_key: str
    """Of this episode alone."""
    model: str
    """Name of the policy at the endpoint."""
    session: HarnessSession
    """The environment: what it shows, its tools, and steps."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Those of the recipe."""


Harness = Callable[[HarnessTask], Awaitable[Mapping[str, Any] | None]]
"""Plays one episode; what it returns may hold an `answer`, a `score` and the `usage` that it counted."""


def load_harness(name: str) -> Harness:
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        raise RunError(f"harness '{name}' is not installed in this environment: install the package that registers it")
    loaded: Harness = points[name].load()
    return loaded
