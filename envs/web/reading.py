"""How far a page has been read, where a text has no room for all that is in the window: piece by piece.

Earlier pieces are remembered by their elements, not by their text: the reader keeps their place when a clock ticks or a
box loses the focus. When an element is added to these pieces or removed, reading starts again at the top of the window.
"""

from __future__ import annotations

from collections.abc import Sequence

from .tree import PageNode

__all__ = ["Reading"]


class Reading:
    """The pieces of a page that were shown, by the browser's numbers of their elements."""

    def __init__(self) -> None:
        self.seen: tuple[PageNode, ...] = ()
        """All that texts have shown of what was in the window at the last look."""
        self._passed: tuple[tuple[int, ...], ...] = ()
        """Earlier pieces, which the next text skips."""
        self._is_cut = False
        """Whether there is another piece."""

    def count_passed(self, nodes: Sequence[PageNode]) -> int:
        """Return how many of the nodes earlier pieces have shown; none if these are no longer the first ones."""
        passed = [each for piece in self._passed for each in piece]
        if passed != [node.backend for node in nodes[: len(passed)]] or len(passed) == len(nodes):
            self.start_again()
        return sum(map(len, self._passed))

    def show(self, nodes: Sequence[PageNode], *, is_cut: bool) -> None:
        """Note what a text has shown, earlier pieces included."""
        self.seen, self._is_cut = tuple(nodes), is_cut

    def go_down(self) -> bool:
        """Make the next text show the next piece; return whether there is one."""
        if not self._is_cut:
            return False
        shown = sum(map(len, self._passed))
        self._passed = (*self._passed, tuple(node.backend for node in self.seen[shown:]))
        return True

    def go_up(self) -> bool:
        """Make the next text show the piece before; return whether there is one."""
        there = bool(self._passed)
        self._passed = self._passed[:-1]
        return there

    def go_to(self, backend: int) -> None:
        """Make the next text show the piece of an element, where that is an earlier one."""
        at = next((at for at, piece in enumerate(self._passed) if backend in piece), len(self._passed))
        self._passed = self._passed[:at]

    def start_again(self) -> None:
        self._passed = ()
