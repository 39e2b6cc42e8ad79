"""Chromium: where it is, how it is started, and one process of it that visits share.

A `Browser` has a thread of its own in which all that concerns it runs; a `Room` lends it to visits, and ends it when
the last of them has left.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from threading import BoundedSemaphore, Lock, RLock, Thread
from typing import Any, TypeVar
from weakref import WeakValueDictionary, finalize

from playwright.async_api import Browser as Process
from playwright.async_api import Error, Playwright, async_playwright

from ..errors import EnvFault, FaultKind
from . import BROWSERS

__all__ = ["INSTALL", "Browser", "Room", "find_executable", "room", "unless"]

T = TypeVar("T")

INSTALL = "no Chromium was found on this machine; on Debian: apt-get install chromium-headless-shell"
_START_S = 60.0
_STOP_S = 10.0
_AT_ONCE = BoundedSemaphore(max(8, 4 * (os.cpu_count() or 1)))
"""Calls of the whole process: if all pages worked at once, none would be there in time."""
_FLAGS = (
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--dns-prefetch-disable",
    # what pages send past every proxy and every rule for names
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--font-render-hinting=none",
    "--disable-gpu",
)


def find_executable() -> str:
    """Path of the system's Chromium or Chrome."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise EnvFault(INSTALL)
    return found


def _only(hosts: Sequence[str], at: str) -> str:
    """No name or address leads anywhere except those of the hosts; on a machine, no port but theirs."""
    led = ((name, at or name) for host in sorted(set(hosts)) for name in ((host,) if at else _with_port(host)))
    return ", ".join((*(f"MAP {name} {to}" for name, to in led), "MAP * ~NOTFOUND"))


def _with_port(host: str) -> tuple[str, ...]:
    return (host,) if host.rpartition(":")[2].isdecimal() else (f"{host}:80", f"{host}:443")


async def unless(lost: asyncio.Event, work: Coroutine[Any, Any, T], fault: str) -> T:
    """Await work, or raise a fault as soon as what it waits for is lost: the driver could wait forever."""
    answer, sign = asyncio.ensure_future(work), asyncio.ensure_future(lost.wait())
    try:
        await asyncio.wait((answer, sign), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise EnvFault(fault)
        return answer.result()
    finally:
        answer.cancel()
        sign.cancel()


class Browser:
    """A running browser; ends with `stop`, or when this process ends, even if killed."""

    def __init__(self, hosts: Sequence[str], at: str = "") -> None:
        self.num_seats = 0
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="browser", daemon=True)
        self._driver: Playwright | None = None
        self._process: Process | None = None
        self._lost = asyncio.Event()
        self._thread.start()
        try:
            self._run(self._start(_only(hosts, at)), _START_S)
        except BaseException:
            self.stop()
            raise

    async def _start(self, rules: str) -> None:
        self._driver = await async_playwright().start()
        self._process = await self._driver.chromium.launch(
            executable_path=find_executable(),
            args=[*_FLAGS, f"--host-resolver-rules={rules}"],
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )
        self._process.on("disconnected", lambda _: self._lost.set())

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.is_connected()

    @property
    def process(self) -> Process:
        if self._process is None or not self._process.is_connected():
            raise EnvFault("the browser is gone")
        return self._process

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run work in the browser's thread and wait for it; its deadline starts when its turn comes."""
        with _AT_ONCE:
            if not self.alive:
                work.close()
                raise EnvFault("the browser is gone")
            return self._run(unless(self._lost, work, "the browser is gone"), timeout_s)

    def _run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout_s), self._loop)
        try:
            return future.result(timeout_s + _STOP_S)
        except TimeoutError as error:
            message = f"the browser did not answer within {timeout_s:g} s"
            raise EnvFault(message, kind=FaultKind.DEADLINE) from error
        except Error as error:
            raise EnvFault(f"the browser failed: {str(error).splitlines()[0][:300]}") from error

    def stop(self) -> None:
        """Never raises, and may be called more than once."""
        if self._loop.is_closed():
            return
        with suppress(EnvFault):
            self._run(self._end(), _STOP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(Error):
                await process.close()
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.stop()


class Room:
    """A browser shared by visits to the same hosts, started with the first."""

    def __init__(self, hosts: Sequence[str], at: str = "") -> None:
        self._hosts = tuple(hosts)
        self._at = at
        self._lock = RLock()
        self._running: list[Browser] = []
        finalize(self, _stop_all, self._running)

    def enter(self) -> Browser:
        """Enter a running browser; it must be left again, even if it failed."""
        with self._lock:
            browser = next((each for each in self._running if each.alive), None)
            if browser is None:
                browser = Browser(self._hosts, self._at)
                self._running.append(browser)
            browser.num_seats += 1
            return browser

    def leave(self, browser: Browser) -> None:
        with self._lock:
            browser.num_seats -= 1
            if not browser.num_seats:
                self.shut(browser)
                browser.stop()

    def shut(self, browser: Browser) -> None:
        """Admit no more visits to this browser."""
        with self._lock:
            self._running[:] = [each for each in self._running if each is not browser]


def _stop_all(running: list[Browser]) -> None:
    for browser in running:
        browser.stop()


# The only state of this module: a browser is too heavy for every instance of an environment to have its own.
_ROOMS: WeakValueDictionary[tuple[tuple[str, ...], str], Room] = WeakValueDictionary()
_ROOMS_LOCK = Lock()


def room(hosts: Sequence[str], at: str = "") -> Room:
    """The one for these hosts, shared as long as anybody holds it. They are where their names resolve to, or all at one
    address."""
    key = (tuple(sorted(set(hosts))), at)
    with _ROOMS_LOCK:
        found = _ROOMS.get(key)
        if found is None:
            found = _ROOMS[key] = Room(*key)
        return found
