"""Blocking, thread-safe handle on a shared Chromium; one visit at a time.

Trouble of the browser's is an `EnvFault`; the next visit then begins in another browser.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ..errors import EnvFault
from .actions import Action
from .chromium import Browser, room
from .session import ActionReply, Scene, Visit
from .tree import PageNode

__all__ = ["Surfer"]

T = TypeVar("T")

_CALL_S = 120.0
"""Time limit of one call; a browser that takes longer is given up."""


class Surfer:
    def __init__(self, hosts: Sequence[str] = (), at: str = "") -> None:
        self._room = room(hosts, at)
        self._browser: Browser | None = None
        self._visit: Visit | None = None

    def begin(self, scene: Scene, url: str) -> None:
        """Begin a new visit at a page; one under way ends."""
        self.end()
        browser = self._seat()
        try:
            self._visit = browser.run(Visit.begin(browser.process, scene), _CALL_S)
        except EnvFault:  # its driver may be gone, which nothing reports
            self._room.shut(browser)
            self._leave(browser)
            raise
        browser.run(self._visit.go(url), _CALL_S)

    def _seat(self) -> Browser:
        if self._browser is None:
            self._browser = self._room.enter()
        return self._browser

    def perform(self, action: Action) -> ActionReply:
        browser, visit = self._under_way()
        return browser.run(visit.perform(action), _CALL_S)

    def see(self) -> str:
        browser, visit = self._under_way()
        return browser.run(visit.see(), _CALL_S)

    def picture(self) -> bytes | None:
        """What the window shows, as PNG; None where there is no visit, or nothing small enough."""
        if self._browser is None or self._visit is None:
            return None
        return self._browser.run(self._visit.picture(), _CALL_S)

    def settle(self) -> None:
        browser, visit = self._under_way()
        browser.run(visit.settle(), _CALL_S)

    def ask(self, expression: str) -> Any:
        """Evaluate an expression in the page itself, among its own scripts."""
        browser, visit = self._under_way()
        return browser.run(visit.tab.leaf.evaluate(expression), _CALL_S)

    @property
    def visit(self) -> Visit:
        return self._under_way()[1]

    @property
    def seen(self) -> tuple[tuple[int, PageNode], ...]:
        """Elements that the last observation shows, with their numbers."""
        tab = self.visit.tab
        return tuple((tab.numbers[node.backend], node) for node in tab.reading.seen)

    def node(self, number: int) -> PageNode | None:
        """The element with a number as it was when last in the window, even if no observation has shown it."""
        tab = self.visit.tab
        backend = tab.backend(number)
        return None if backend is None else tab.known[backend]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run another coroutine of the visit."""
        return self._under_way()[0].run(work, _CALL_S)

    def _under_way(self) -> tuple[Browser, Visit]:
        if self._browser is None or self._visit is None:
            raise EnvFault("no visit is under way")
        return self._browser, self._visit

    def end(self) -> None:
        """End the visit, and keep the seat unless the browser is gone."""
        browser, visit, self._visit = self._browser, self._visit, None
        if browser is None:
            return
        if visit is not None and browser.alive:
            with suppress(EnvFault):  # it has ended by itself
                browser.run(visit.end(), _CALL_S)
        if not browser.alive:
            self._leave(browser)

    def close(self) -> None:
        """Release everything; may be called more than once."""
        self.end()
        if self._browser is not None:
            self._leave(self._browser)

    def _leave(self, browser: Browser) -> None:
        self._browser = None
        self._room.leave(browser)
