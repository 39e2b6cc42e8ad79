"""A visit: the tabs of one episode, what is seen in them and what is done.

Takes a `Scene` and actions; gives pages as text, and `ActionReply`s. Everything here runs in the browser's own thread.
Nothing waits for a fixed time: after an action the visit waits until what it set off has come to rest, by what the
browser reports of requests, navigations and frames drawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser as Process
from playwright.async_api import BrowserContext, Dialog, Error
from playwright.async_api import Page as Leaf

from ..errors import EnvFault
from ..pictures import is_picture
from ..protocol import Status
from .actions import (
    Action,
    Click,
    CloseTab,
    Drag,
    GoBack,
    GoForward,
    GoTo,
    Hover,
    NewTab,
    Point,
    Press,
    Scroll,
    Select,
    Spot,
    SwitchTab,
    Type,
    Wait,
)
from .allowlist import compile_outside, fence
from .scripts import CHOOSE, FIND_POINT, MAKE_READY, SCROLL, write_opening
from .tab import Tab
from .texts import BrowserTexts
from .tree import TreeWindow, format_page

__all__ = ["EPOCH", "ActionReply", "Scene", "Visit"]

EPOCH = 1_700_000_000
"""The time on a page's clock when it stands still, in seconds."""
_SETTLE_S = 10.0
_LOAD_S = 60.0
"""For an episode's first page: on a busy machine it must not begin with half of it."""
_MOST_TABS = 8
_SCALES = (1.0, 0.5, 0.25)
"""Of a picture, until it is small enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Settings of a visit."""

    hosts: tuple[str, ...] = ()
    """Name and port of what may be reached; everything else is not there."""
    folder: tuple[str, Path] | None = None
    """A host that does not exist, and the folder whose files are its pages."""
    window: TreeWindow
    tokens: int = 4096
    """Longest text of a page."""
    seed: int = 0
    tick_ms: int | None = None
    """How far the page's clock moves with each action, standing still otherwise; None lets it run."""
    numbers_last: bool = False
    """Whether an element's number follows it. A small model that searches for an element then finds the number right
    after it, and learns this from far fewer demonstrations than with the number in front."""
    repeats: bool = True
    """Whether lines that the last page had too are shown again."""
    headed: bool = True
    """Whether a page's text begins with its address and the tabs."""
    state: Mapping[str, Any] | None = None
    """Cookies and storage to begin with, as the browser's driver saves them."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Added to each request."""

    @property
    def reached(self) -> tuple[str, ...]:
        return (*self.hosts, self.folder[0]) if self.folder else self.hosts


@dataclass(frozen=True, slots=True)
class ActionReply:
    """Result of an action; its text is empty where it was done."""

    text: str = ""
    status: Status = Status.OK


_DONE = ActionReply()


def _refuse(text: str, **what: object) -> ActionReply:
    return ActionReply(text.format(**what), Status.REFUSED)


class Visit:
    """One context of a browser."""

    def __init__(self, scene: Scene, context: BrowserContext) -> None:
        self.scene = scene
        self.context = context
        self.tabs: list[Tab] = []
        self.here = 0
        """Which tab is looked at."""
        self.said: list[str] = []
        """What dialogs have said since the last look."""
        self._shown: dict[int, str] = {}
        """Lines of the page at the last look, by element."""
        self._read: Tab | None = None
        """Which tab the last look was at."""
        self._coming: set[asyncio.Task[None]] = set()

    @classmethod
    async def begin(cls, process: Process, scene: Scene) -> Visit:
        window = scene.window
        context = await process.new_context(
            viewport={"width": window.width, "height": window.height},
            locale="en-US",
            timezone_id="UTC",
            reduced_motion="reduce",
            service_workers="block",
            accept_downloads=False,
            storage_state=scene.state,  # type: ignore[arg-type]
            extra_http_headers=dict(scene.headers),
        )
        visit = cls(scene, context)
        try:
            await visit._furnish()
        except BaseException:
            await visit.end()
            raise
        return visit

    async def _furnish(self) -> None:
        scene, context = self.scene, self.context
        await context.add_init_script(write_opening(scene.seed))
        if scene.tick_ms is not None:
            await context.clock.install(time=EPOCH)
            await context.clock.pause_at(EPOCH + 1)
        await fence(context, scene.hosts, scene.folder)
        context.on("page", self._came)
        await context.new_page()
        await self._all_here()

    async def end(self) -> None:
        """Never raises."""
        with suppress(Error):
            await self.context.close()

    # --- tabs ---

    @property
    def tab(self) -> Tab:
        return self.tabs[self.here]

    def _came(self, leaf: Leaf) -> None:
        task = asyncio.ensure_future(self._take_in(leaf))
        self._coming.add(task)
        task.add_done_callback(self._coming.discard)

    async def _take_in(self, leaf: Leaf) -> None:
        try:
            if len(self.tabs) >= _MOST_TABS:
                await leaf.close()
                return
            tab = await Tab.on(leaf, self.scene.window)
        except Error:  # closed again before it was ready
            return
        finally:
            for other in self.tabs:
                other.opening = max(0, other.opening - 1)
        leaf.on("dialog", self._answer)
        leaf.on("close", lambda _: self._left(tab))
        self.tabs.append(tab)
        self.here = len(self.tabs) - 1
        with suppress(Error):  # only this reports what it requested before it was here
            await leaf.wait_for_load_state("load", timeout=1000 * _SETTLE_S)

    def _left(self, tab: Tab) -> None:
        if tab in self.tabs:
            self.tabs.remove(tab)
            self.here = max(0, min(self.here, len(self.tabs) - 1))

    async def _answer(self, dialog: Dialog) -> None:
        self.said.append(" ".join(dialog.message.split())[:300])
        with suppress(Error):  # the page may be gone by now
            await dialog.accept()

    async def _all_here(self) -> None:
        while self._coming:
            await asyncio.gather(*self._coming)

    # --- seeing ---

    async def see(self) -> str:
        tab, scene = self.tab, self.scene
        page = await tab.look()
        lines = [BrowserTexts.DIALOG.format(what=what) for what in self.said]
        self.said.clear()
        if scene.headed:
            lines.append(await self._heading())
        if tab is not self._read:
            tab.reading.start_again()
            self._read = tab
        skipped = tab.reading.count_passed(page.nodes)
        before = () if scene.repeats else tuple(self._shown.values())
        shown = format_page(
            page, tab.numbers, scene.tokens, numbers_last=scene.numbers_last, before=before, skipped=skipped
        )
        nodes = page.nodes[: skipped + len(shown.lines)]
        newer = dict(zip([node.backend for node in nodes[skipped:]], shown.lines, strict=True))
        # a newer line takes the place of what an earlier piece said of the same element
        self._shown = {**self._shown, **newer} if skipped else newer
        tab.reading.show(nodes, is_cut=shown.is_cut)
        return "\n".join((*lines, shown.text))

    async def picture(self) -> bytes | None:
        """Take a picture of the window; a large one is taken again at half the scale."""
        for scale in _SCALES:
            with suppress(Error):  # a page that was just left has no picture
                data = await self.tab.draw(scale)
                if is_picture(data):
                    return data
        return None

    async def _heading(self) -> str:
        titles = [await tab.title() for tab in self.tabs]
        listed = [f"Tab {number}{' (here)' * (number == self.here)}: {title}" for number, title in enumerate(titles)]
        shown = listed if len(listed) > 1 else [f"Page: {titles[0]}"]
        return "\n".join((*shown, f"Address: {self.tab.leaf.url[:300]}"))

    # --- doing ---

    async def go(self, url: str) -> None:
        """Open a page in the current tab; a fault where there is none."""
        reply = await self._go_to(GoTo(url))
        with suppress(Error):  # a page that is never whole is taken as it is
            await self.tab.leaf.wait_for_load_state("load", timeout=1000 * _LOAD_S)
        await self.settle()
        if reply.status is not Status.OK:
            raise EnvFault(f"no page at {url[:200]}: {reply.text}")

    async def perform(self, action: Action) -> ActionReply:
        reply = await _DOING[type(action)](self, action)
        await self.settle()
        return reply

    async def settle(self) -> None:
        """Wait until the page is at rest, up to a limit."""
        until = asyncio.get_running_loop().time() + _SETTLE_S
        await self._rest(until)
        if self.scene.tick_ms is not None:
            with suppress(Error):  # a page that has just been left has no clock
                await self.context.clock.run_for(self.scene.tick_ms)
            await self._rest(until)
        if not self.tabs:
            await self.context.new_page()
            await self._all_here()

    async def _rest(self, until: float) -> None:
        while asyncio.get_running_loop().time() < until:
            await self._all_here()
            if not self.tabs:
                return
            tab = self.tab
            drawn = await tab.drawn()
            if not await tab.quiet(until):
                continue
            if drawn and not self._coming:
                return

    async def _click(self, action: Click) -> ActionReply:
        return await self._at(action.place, self.tab.leaf.mouse.click)

    async def _hover(self, action: Hover) -> ActionReply:
        return await self._at(action.place, self.tab.leaf.mouse.move)

    async def _at(self, place: Spot, do: Callable[[float, float], Awaitable[None]]) -> ActionReply:
        point = await self._point(place)
        if isinstance(point, ActionReply):
            return point
        await do(point.x, point.y)
        return _DONE

    async def _drag(self, action: Drag) -> ActionReply:
        start, end = await self._point(action.start), await self._point(action.end)
        for point in (start, end):
            if isinstance(point, ActionReply):
                return point
        assert isinstance(start, Point)
        assert isinstance(end, Point)
        mouse = self.tab.leaf.mouse
        await mouse.move(start.x, start.y)
        await mouse.down()
        await mouse.move(end.x, end.y, steps=8)
        await mouse.up()
        return _DONE

    async def _type(self, action: Type) -> ActionReply:
        reply = await self._at(action.element, self.tab.leaf.mouse.click)
        if reply.status is not Status.OK:
            return reply
        how = str(await self.tab.ask(MAKE_READY, None, action.text))
        if how == "none":
            return _refuse(BrowserTexts.NOT_TYPED, number=action.element)
        if how.startswith("refused "):
            return _refuse(BrowserTexts.FORM[how.removeprefix("refused ")])
        keyboard = self.tab.leaf.keyboard
        if how == "keys":
            await (keyboard.type(action.text) if action.text else keyboard.press("Delete"))
        if action.enter:
            await keyboard.press("Enter")
        return _DONE

    async def _select(self, action: Select) -> ActionReply:
        backend = self._turn_to(action.element)
        how = None if backend is None else await self.tab.ask(CHOOSE, backend, action.option)
        if how is None:
            return _refuse(BrowserTexts.NO_ELEMENT, number=action.element)
        if how == "done":
            return _DONE
        return _refuse(BrowserTexts.NOT_CHOSEN[how], number=action.element, what=action.option[:60])

    async def _press(self, action: Press) -> ActionReply:
        await self.tab.leaf.keyboard.press(action.keys)
        return _DONE

    async def _scroll(self, action: Scroll) -> ActionReply:
        backend = None
        if action.element is not None and (backend := self._turn_to(action.element)) is None:
            return _refuse(BrowserTexts.NO_ELEMENT, number=action.element)
        reading = self.tab.reading
        if not action.down:
            # what comes back is to be read again
            self._shown = {}
        # the rest of what is in the window comes before what is further away
        if backend is None and (reading.go_down() if action.down else reading.go_up()):
            return _DONE
        moved = await self.tab.ask(SCROLL, backend, action.down)
        if moved and backend is None:
            reading.start_again()
        return _DONE if moved else _refuse(BrowserTexts.NOT_SCROLLED)

    async def _go_to(self, action: GoTo) -> ActionReply:
        url = action.url if "://" in action.url else f"http://{action.url}"
        if compile_outside(self.scene.reached).match(url) or not url.startswith(("http://", "https://")):
            return _refuse(BrowserTexts.ELSEWHERE)
        try:
            await self.tab.leaf.goto(url, wait_until="commit")
        except Error as error:
            if self.tab.crashed or not self.tabs:
                raise
            return _refuse(BrowserTexts.NO_PAGE, what=str(error).splitlines()[0][:100])
        return _DONE

    async def _go_back(self, action: GoBack) -> ActionReply:
        return await self._move(-1, BrowserTexts.NO_BACK)

    async def _go_forward(self, action: GoForward) -> ActionReply:
        return await self._move(1, BrowserTexts.NO_FORWARD)

    async def _move(self, by: int, otherwise: str) -> ActionReply:
        history = await self.tab.send("Page.getNavigationHistory")
        at, entries = history["currentIndex"] + by, history["entries"]
        if not 0 <= at < len(entries) or entries[at]["url"] == "about:blank":
            return _refuse(otherwise)
        await (self.tab.leaf.go_back if by < 0 else self.tab.leaf.go_forward)(wait_until="commit")
        return _DONE

    async def _new_tab(self, action: NewTab) -> ActionReply:
        if len(self.tabs) >= _MOST_TABS:
            return _refuse(BrowserTexts.MANY_TABS, number=_MOST_TABS)
        await self.context.new_page()
        return _DONE

    async def _switch_tab(self, action: SwitchTab) -> ActionReply:
        if action.number >= len(self.tabs):
            return _refuse(BrowserTexts.NO_TAB, number=action.number)
        self.here = action.number
        await self.tab.leaf.bring_to_front()
        return _DONE

    async def _close_tab(self, action: CloseTab) -> ActionReply:
        if len(self.tabs) == 1:
            return _refuse(BrowserTexts.LAST_TAB)
        await self.tab.leaf.close()
        return _DONE

    async def _wait(self, action: Wait) -> ActionReply:
        return _DONE

    async def _point(self, place: Spot) -> Point | ActionReply:
        if isinstance(place, Point):
            window = self.scene.window
            inside = place.x < window.width and place.y < window.height
            return place if inside else _refuse(BrowserTexts.OUTSIDE, width=window.width, height=window.height)
        backend = self._turn_to(place)
        found = None if backend is None else await self.tab.ask(FIND_POINT, backend)
        return _refuse(BrowserTexts.NO_ELEMENT, number=place) if found is None else Point(found["x"], found["y"])

    def _turn_to(self, number: int) -> int | None:
        """Return Chromium's number of an element, and make the next text show its piece of the page."""
        backend = self.tab.backend(number)
        if backend is not None:
            self.tab.reading.go_to(backend)
        return backend


_DOING: Mapping[type, Callable[[Visit, Any], Awaitable[ActionReply]]] = {
    Click: Visit._click,
    Hover: Visit._hover,
    Drag: Visit._drag,
    Type: Visit._type,
    Select: Visit._select,
    Press: Visit._press,
    Scroll: Visit._scroll,
    GoTo: Visit._go_to,
    GoBack: Visit._go_back,
    GoForward: Visit._go_forward,
    NewTab: Visit._new_tab,
    SwitchTab: Visit._switch_tab,
    CloseTab: Visit._close_tab,
    Wait: Visit._wait,
}
