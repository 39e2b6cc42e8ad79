"""Observations in words where their space alone does not say how: by the option `describe`, or by what they look like.

Other packages offer describers under the entry point `agym.describers`: a function that takes the bare environment and
an observation, and returns the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from typing import Any, TypeAlias

from ..errors import BadOption, EnvFault, suggest
from .minigrid import ACTIONS, GUIDE, is_minigrid, tell_minigrid
from .spaces import put_in_words

__all__ = ["Describer", "find_describer"]

Tell: TypeAlias = Callable[[Any, Any], str]
"""The text for a bare environment and what it lets the agent see."""

_GROUP = "agym.describers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Describer:
    tell: Tell
    actions: tuple[str, ...] = ()
    """Names of the actions, if the describer knows them."""
    guide: str = ""
    returns: tuple[float, float] | None = None
    """The worst return and the best, if the describer knows them."""


_MINIGRID = Describer(tell=tell_minigrid, actions=ACTIONS, guide=GUIDE, returns=(0, 1))


def find_describer(chosen: str | Mapping[str, Any] | None, space: Any) -> Describer | None:
    """The describer that the user has chosen, or the one that fits; None if the space says it all."""
    if chosen is None:
        return _MINIGRID if is_minigrid(space) else None
    if not isinstance(chosen, str):
        return _describe_grid(space, tuple(chosen["cells"]))
    if chosen in _BUILT_IN:
        return _BUILT_IN[chosen](space)
    for point in entry_points(group=_GROUP, name=chosen):
        return Describer(tell=_checked(chosen, point.load()))
    names = (*_BUILT_IN, *(point.name for point in entry_points(group=_GROUP)))
    raise BadOption(f"gymnasium option 'describe': no describer is called '{chosen[:60]}'{suggest(chosen, names)}")


def _describe_minigrid(space: Any) -> Describer:
    if not is_minigrid(space):
        raise BadOption(
            "gymnasium option 'describe': minigrid needs observations with a small image, a direction and a mission"
        )
    return _MINIGRID


def _describe_grid(space: Any, cells: tuple[str, ...] = ()) -> Describer:
    def tell(bare: Any, seen: Any) -> str:
        return put_in_words(space, seen, cells)

    return Describer(tell=tell)


_BUILT_IN: Mapping[str, Callable[[Any], Describer]] = {"grid": _describe_grid, "minigrid": _describe_minigrid}


def _checked(name: str, tell: Any) -> Tell:
    if not callable(tell):
        raise BadOption(f"gymnasium option 'describe': '{name}' is registered with something that cannot be called")
    return partial(_tell_checked, name, tell)


def _tell_checked(name: str, tell: Callable[[Any, Any], object], bare: Any, seen: Any) -> str:
    text = tell(bare, seen)
    if not isinstance(text, str):
        raise EnvFault(f"the describer '{name}' returned {type(text).__name__}, where a text is expected")
    return text
