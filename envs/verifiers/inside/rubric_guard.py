"""Notes what a rubric of the 0.1 line swallows: it takes a reward function that raises for one that gave 0, even where
its judge is down. Such an episode was not scored, and is a fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import isawaitable
from typing import Any

__all__ = ["guard_rubric", "raise_lost_calls"]

_CLIENTS = {"openai", "httpx"}
"""Packages whose errors mean that a judge, or another service, gave no answer."""

_lost_calls: ContextVar[list[Exception] | None] = ContextVar("lost_calls", default=None)


def guard_rubric(rubric: Any) -> None:
    """Guard the reward functions of a rubric, and of those that it is made of."""
    rubric.funcs = [_guard(func) for func in getattr(rubric, "funcs", None) or ()]
    for member in getattr(rubric, "rubrics", None) or ():
        guard_rubric(member)
    for environment in (getattr(rubric, "env_map", None) or {}).values():
        guard_rubric(environment.rubric)


@contextmanager
def raise_lost_calls() -> Iterator[None]:
    """Raise at the end where a reward function did because a service gave it no answer."""
    lost: list[Exception] = []
    token = _lost_calls.set(lost)
    try:
        yield
    finally:
        _lost_calls.reset(token)
    if lost:
        raise RuntimeError(f"a reward function got no answer: {type(lost[0]).__name__}: {lost[0]}") from lost[0]


def _guard(func: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(func)  # a rubric goes by names and signatures
    def guarded(*args: Any, **kwargs: Any) -> Any:
        with _noting():
            found = func(*args, **kwargs)
        return _await(found) if isawaitable(found) else found

    return guarded


async def _await(found: Awaitable[Any]) -> Any:
    with _noting():
        return await found


@contextmanager
def _noting() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        lost = _lost_calls.get()
        if lost is not None and _comes_from_client(error):
            lost.append(error)
        raise


def _comes_from_client(error: BaseException | None) -> bool:
    while error is not None:
        # by name, as a package need not have either
        if any(kind.__module__.partition(".")[0] in _CLIENTS for kind in type(error).__mro__):
            return True
        error = error.__cause__ or error.__context__
    return False
