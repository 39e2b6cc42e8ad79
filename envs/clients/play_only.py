"""Clients of servers that offer nothing but play: no demonstrations, no advice, no texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..errors import EnvFault, FaultKind
from ..protocol import Reached
from ..wire import WireError

__all__ = ["PlayOnlyEnv", "PlayOnlySession", "read_answer"]

T = TypeVar("T")


class PlayOnlyEnv:
    async def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        return None

    async def hindsight(self, task: str, seed: int, actions: Sequence[str]) -> tuple[Reached, ...] | None:
        return None

    async def corpus(self) -> tuple[str, ...]:
        return ()


class PlayOnlySession:
    async def advice(self) -> str | None:
        return None

    async def noise_action(self, seed: int) -> str | None:
        return None


def read_answer(request: str, read: Callable[[], T]) -> T:
    """Turn an unreadable answer into a fault of the server's."""
    try:
        return read()
    except WireError as error:
        raise EnvFault(f"the answer to {request} makes no sense: {error}", kind=FaultKind.GARBAGE) from error
