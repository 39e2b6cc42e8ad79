"""One tab: what is seen in it, what runs in it, and what it still waits for.

Gives a `SeenPage` for each look, answers of scripts, and whether all that was set off has come to rest, by what the
browser reports of requests, navigations and frames drawn.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from playwright.async_api import CDPSession, Error, Request
from playwright.async_api import Page as Leaf

from .chromium import unless
from .reading import Reading
from .scripts import FRAMES
from .tree import STYLES, PageNode, SeenPage, TreeWindow, read_page

__all__ = ["Tab"]

_FRAMES_S = 2.0
_ENDLESS = frozenset(("eventsource", "media", "ping", "websocket"))
"""Requests that need not come to an end."""
_FETCHED = frozenset(("Fetch", "Font", "Image", "Script", "Stylesheet", "XHR"))
"""What a document asks for that is there already."""


class Tab:
    """A page in the browser, the numbers of its elements, and its pending work."""

    def __init__(self, leaf: Leaf, cdp: CDPSession, window: TreeWindow) -> None:
        self.leaf = leaf
        self.cdp = cdp
        self.opening = 0
        """Tabs that this one is about to open."""
        self.numbers: dict[int, int] = {}
        """Chromium's numbers to those shown: from 1 on in the order in which elements were first seen."""
        self.known: dict[int, PageNode] = {}
        """Elements as they were when last in the window, by Chromium's numbers."""
        self.reading = Reading()
        self._window = window
        self._document = 0
        self._busy: set[object] = set()
        self._fetches: dict[str, tuple[str, str]] = {}
        """Requests of documents, each with its frame and document."""
        self._changed = asyncio.Event()
        self._crashed = asyncio.Event()

    @classmethod
    async def on(cls, leaf: Leaf, window: TreeWindow) -> Tab:
        tab = cls(leaf, await leaf.context.new_cdp_session(leaf), window)
        leaf.on("request", tab._asked)
        leaf.on("requestfinished", tab._got)
        leaf.on("requestfailed", tab._got)
        leaf.on("crash", tab._crash)
        for event in ("frameRequestedNavigation", "frameStartedLoading"):
            tab.cdp.on(f"Page.{event}", tab._leaves)
        for event in ("frameStoppedLoading", "navigatedWithinDocument", "frameDetached"):
            tab.cdp.on(f"Page.{event}", tab._arrived)
        tab.cdp.on("Page.frameScheduledNavigation", tab._plans)
        tab.cdp.on("Page.frameClearedScheduledNavigation", tab._carries_out)
        tab.cdp.on("Page.windowOpen", tab._opens)
        tab.cdp.on("Page.frameNavigated", tab._replaced)
        tab.cdp.on("Network.requestWillBeSent", tab._fetch)
        for event in ("loadingFinished", "loadingFailed"):
            tab.cdp.on(f"Network.{event}", tab._fetched)
        await tab.cdp.send("Page.enable")
        await tab.cdp.send("Network.enable", {"maxTotalBufferSize": 0, "maxResourceBufferSize": 0})
        return tab

    @property
    def crashed(self) -> bool:
        return self._crashed.is_set()

    async def send(self, method: str, given: Mapping[str, Any] | None = None) -> Any:
        """Send a command of the browser's protocol; a page that crashes meanwhile is a fault at once."""
        return await unless(self._crashed, self.cdp.send(method, dict(given or {})), "a page crashed")

    # what it waits for

    def _asked(self, request: Request) -> None:
        if request.resource_type not in _ENDLESS:
            self._busy.add(request)

    def _got(self, request: Request) -> None:
        self._busy.discard(request)
        self._changed.set()

    # The driver reports a request once the fence has been asked about it, which may be frames after it was made; what
    # follows comes in one order with the answers of scripts.

    def _fetch(self, event: Mapping[str, Any]) -> None:
        if event.get("type") in _FETCHED:
            self._fetches[event["requestId"]] = (event.get("frameId", ""), event["loaderId"])

    def _fetched(self, event: Mapping[str, Any]) -> None:
        self._fetches.pop(event["requestId"], None)
        self._changed.set()

    def _replaced(self, event: Mapping[str, Any]) -> None:
        frame = event["frame"]
        for request, (of, document) in tuple(self._fetches.items()):
            if of == frame["id"] and document != frame["loaderId"]:
                del self._fetches[request]
        self._changed.set()

    def _leaves(self, event: Mapping[str, Any]) -> None:
        # a new tab's navigation is reported in the tab that opens it
        if event.get("disposition", "currentTab") == "currentTab":
            self._busy.add(event["frameId"])

    def _arrived(self, event: Mapping[str, Any]) -> None:
        self._busy.discard(event["frameId"])
        self._carries_out(event)

    # A plan is over when the browser is asked to navigate; until it begins to, only the request reports it.

    def _plans(self, event: Mapping[str, Any]) -> None:
        self._busy.add(("planned", event["frameId"]))

    def _carries_out(self, event: Mapping[str, Any]) -> None:
        self._busy.discard(("planned", event["frameId"]))
        self._changed.set()

    def _opens(self, event: Mapping[str, Any]) -> None:
        self.opening += 1

    def _crash(self, leaf: Leaf) -> None:
        self._crashed.set()
        self._waits_no_more()
        self._changed.set()

    async def quiet(self, until: float) -> bool:
        """Wait until nothing is pending; return whether nothing was."""
        waited = False
        while self._busy or self._fetches or self.opening:
            waited = True
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                self._waits_no_more()
                break
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(left, 0.5))
        return not waited

    def _waits_no_more(self) -> None:
        self._busy.clear()
        self._fetches.clear()
        self.opening = 0

    async def drawn(self) -> bool:
        """Wait until the page is drawn; False where it went away meanwhile."""
        try:
            world = await self._world()
            evaluated = self.send("Runtime.evaluate", {"contextId": world, "expression": FRAMES, "awaitPromise": True})
            await asyncio.wait_for(evaluated, _FRAMES_S)
        except TimeoutError:  # a page that draws nothing is not waited for any longer
            return True
        except Error:
            return False
        return True

    # asking

    async def _world(self) -> int:
        """Isolated world in which our scripts run, invisible to the page's."""
        tree = await self.send("Page.getFrameTree")
        frame = tree["frameTree"]["frame"]["id"]
        made = await self.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "agym"})
        return int(made["executionContextId"])

    async def ask(self, function: str, backend: int | None, *arguments: object) -> Any:
        """Call a function on a node, or on the document; None where the node is gone."""
        world = await self._world()
        held = await self._held(world, backend)
        if held is None:
            return None
        answer = await self.send(
            "Runtime.callFunctionOn",
            {
                "objectId": held,
                "functionDeclaration": function,
                "arguments": [{"value": each} for each in arguments],
                "returnByValue": True,
            },
        )
        return answer["result"].get("value")

    async def _held(self, world: int, backend: int | None) -> str | None:
        if backend is None:
            document = await self.send("Runtime.evaluate", {"contextId": world, "expression": "document"})
            return str(document["result"]["objectId"])
        try:
            node = await self.send("DOM.resolveNode", {"backendNodeId": backend, "executionContextId": world})
        except Error:
            return None
        return str(node["object"]["objectId"])

    def backend(self, number: int) -> int | None:
        return next((backend for backend, each in self.numbers.items() if each == number), None)

    # seeing

    async def look(self) -> SeenPage:
        accessible = await self.send("Accessibility.getFullAXTree")
        snapshot = await self.send("DOMSnapshot.captureSnapshot", {"computedStyles": list(STYLES)})
        page = read_page(accessible["nodes"], snapshot, self._window)
        document = snapshot["documents"][0]["nodes"]["backendNodeId"][0]
        if document != self._document:
            self._document, self.numbers, self.known = document, {}, {}
        for node in page.nodes:
            self.numbers.setdefault(node.backend, len(self.numbers) + 1)
            self.known[node.backend] = node
        return page

    async def draw(self, scale: float) -> bytes:
        """What the window shows, as PNG."""
        clip = {"x": 0, "y": 0, "width": self._window.width, "height": self._window.height, "scale": scale}
        taken = await self.send("Page.captureScreenshot", {"format": "png", "clip": clip})
        return b64decode(taken["data"])

    async def title(self) -> str:
        with suppress(Error):
            return " ".join((await self.leaf.title()).split())[:100]
        return ""
