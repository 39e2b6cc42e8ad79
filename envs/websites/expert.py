"""Follow the path of a task on real pages; an element out of view is scrolled to, first down, then up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..protocol import Status, Step
from ..web.labels import format_label
from ..web.tree import PageNode
from .paths import Element, PathAction

__all__ = ["walk_path"]

_Seen = Sequence[tuple[int, PageNode]]


def walk_path(path: Iterable[PathAction], page: str, look: Callable[[], _Seen], act: Callable[[str], Step]) -> None:
    """Follow a path from a page, given as text; `LookupError` where the pages are not as it says."""
    walker = _Walker(page, look, act)
    for action in path:
        walker.do(action)


class _Walker:
    def __init__(self, page: str, look: Callable[[], _Seen], act: Callable[[str], Step]) -> None:
        self._page = page
        self._look = look
        self._act = act
        self._known: dict[int, PageNode] = {}
        """All of this page that was in view so far; numbers grow as one goes down."""

    def do(self, action: PathAction) -> None:
        element = [] if action.element is None else [self._find(action.element)]
        arguments = action.arguments
        if action.verb == "type" and arguments[-1:] == ("1",):
            arguments = arguments[:-1]  # Enter is the default
        self._give(" ".join((action.verb, *element, *(f"[{argument}]" for argument in arguments))))

    def _give(self, action: str) -> None:
        step = self._act(action)
        if step.ended or step.status is not Status.OK:
            raise LookupError(f"{action}: {step.observation.text[:200]}")
        self._page = step.observation.text

    def _find(self, wanted: Element) -> str:
        """An element as an action names it, scrolled to if need be."""
        found = self._in_view(wanted)
        # from the top down again: what is scrolled up to begins with the first piece of a long text
        for way, sign in (("down", "below"), ("up", "above"), ("down", "below")):
            while found is None and self._is_more(sign):
                self._give(f"scroll [{way}]")
                found = self._in_view(wanted)
        if found is None:
            raise LookupError(f"no {wanted.role} '{wanted.name}' on this page")
        return format_label(self._known[found], found)

    def _is_more(self, where: str) -> bool:
        """Whether the end of the page says that there is more in this direction."""
        ends = self._page.rsplit("\n", 2)[1:]  # the task may be below
        return any(line.startswith("(there is more") and where in line for line in ends)

    def _in_view(self, wanted: Element) -> int | None:
        seen = self._look()
        if any(number in self._known and self._known[number].backend != node.backend for number, node in seen):
            self._known.clear()
        self._known.update(seen)
        above = 0
        if wanted.below:
            above = min((number for number, node in self._known.items() if node.name == wanted.below), default=10**6)
        fitting = (n for n, node in seen if n > above and (node.role, node.name) == (wanted.role, wanted.name))
        return min(fitting, default=None)
