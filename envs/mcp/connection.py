"""A connection to an MCP server, in a thread of its own: it lists tools and makes calls side by side.

What a server sends is text to be shown, cut and cleaned; none of its requests is granted: no sampling, no roots, no
questions to a user. A server that was started here is stopped together with all that it started.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import BoundedSemaphore, Event, Lock, Thread
from typing import Any, TypeVar

from mcp import Client, MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

from ..errors import EnvFault, FaultKind
from ..limits import oversized
from ..temp_files import Temporary
from .actions import ServerCall
from .options import MCPOptions
from .remote import reach
from .stdio import LastWords, talk

__all__ = ["Connection", "Scratch", "ServerTool", "ToolResult", "clean_text"]

T = TypeVar("T")

# without a handler of its own, what a server does wrong would be written to our standard error
logging.getLogger("mcp").addHandler(logging.NullHandler())

_START_S = 30.0
_STOP_S = 10.0
_LONGEST = 8000
"""Characters of one result."""
_MOST_TOOLS = 200
_MOST_PAGES = 50
"""Of the list of tools, as it may have no end."""
_MOST_KEPT = 10_000
_NAME = "{scratch}"

# For the whole process, as processors are: servers all started at once would hold each other up until none is in time.
_STARTING = BoundedSemaphore(max(4, os.cpu_count() or 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    text: str
    good: bool
    fault: FaultKind | None = None
    """Where there was no answer that could be judged."""


class Connection:
    def __init__(self, options: MCPOptions) -> None:
        self._options = options
        self._kept = _kept(json.dumps([options.command, options.url]))
        self._opened: Future[tuple[ServerTool, ...]] = Future()
        self._over = Event()
        self._too_long = Event()
        """A message was longer than the limit."""
        self._last_words: LastWords | None = None
        """Of a server that is started here."""
        self._scratch = Scratch("")
        self._thread = Thread(target=self._run, name="mcp", daemon=True)
        try:
            with _STARTING:
                self._thread.start()
                self.tools = self._opened.result(_START_S + _STOP_S)
        except Exception as error:
            self.close()
            if self._too_long.is_set():
                raise oversized("mcp", "the list of tools") from error
            what = " ".join(map(_without_secrets, options.command or (options.url,)))
            message = f"no MCP server at '{what[:120]}': {_first(error)}{self._said()}"
            raise EnvFault(message, kind=FaultKind.UNREACHABLE) from error

    # --- in the thread ---

    def _run(self) -> None:
        try:
            asyncio.run(self._hold())
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)

    async def _hold(self) -> None:
        """Hold the connection until closed: a context entered in a task must be left in that task."""
        if self._options.url:
            await self._serve(reach(self._options.url, self._too_long.set))
            return
        folder = Temporary()  # removed by the next one, if this process is killed
        try:
            scratch, temporary = (folder.path.resolve() / name for name in ("scratch", "tmp"))
            temporary.mkdir()
            _fill(scratch, self._options.files)
            self._scratch = Scratch(str(scratch))
            command = [_place(word, self._scratch, first=not at) for at, word in enumerate(self._options.command)]
            # little else of the environment is passed on
            environ = {"HOME": str(scratch), "TMPDIR": str(temporary)}
            self._last_words = LastWords()
            await self._serve(talk(command, scratch, environ, self._last_words, self._too_long.set))
        except BaseException:
            if self._last_words is not None:
                await self._last_words.ended()
            raise
        finally:
            folder.remove()

    async def _serve(self, transport: Any) -> None:
        async with Client(transport, read_timeout_seconds=_START_S) as self._client:
            self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
            self._opened.set_result(await self._list())
            if not self._over.is_set():
                await self._closing.wait()

    async def _list(self) -> tuple[ServerTool, ...]:
        tools: list[ServerTool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            tools += [
                ServerTool(name=tool.name, description=tool.description or "", schema=tool.input_schema)
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if cursor is None or len(tools) >= _MOST_TOOLS or self._over.is_set():
                break
        return tuple(tools[:_MOST_TOOLS])

    async def _call(self, call: ServerCall) -> ToolResult:
        timeout_s = self._options.timeout_s
        try:
            async with asyncio.timeout(timeout_s + 1):
                arguments = {name: self._scratch.fill_in(value) for name, value in call.arguments.items()}
                given = await self._client.call_tool(call.name, arguments, read_timeout_seconds=timeout_s)
        except (MCPError, TimeoutError) as error:
            if self._too_long.is_set():
                raise oversized("mcp", f"a call of '{call.name[:60]}'") from error
            code = error.code if isinstance(error, MCPError) else REQUEST_TIMEOUT
            if code == CONNECTION_CLOSED:
                if self._last_words is not None:
                    await self._last_words.ended()
                raise EnvFault(f"the MCP server is gone{self._said()}") from error
            if code == REQUEST_TIMEOUT:
                return ToolResult(text=f"no answer within {timeout_s:g} s", good=False, fault=FaultKind.DEADLINE)
            return ToolResult(text=clean_text(self._scratch.take_out(str(error))), good=False)
        except (ValueError, RuntimeError):
            return ToolResult(text="an answer that makes no sense", good=False, fault=FaultKind.GARBAGE)
        return ToolResult(text=clean_text(self._scratch.take_out(_text(given))), good=not given.is_error)

    async def _all(self, calls: Sequence[ServerCall]) -> list[ToolResult]:
        return await asyncio.gather(*(self._once(call) for call in calls))

    async def _once(self, call: ServerCall) -> ToolResult:
        """Make a call, or take its cached result if the tool always answers the same."""
        if call.name not in self._options.cached:
            return await self._call(call)
        return await self._kept.get(json.dumps([call.name, call.arguments], sort_keys=True), lambda: self._call(call))

    def _said(self) -> str:
        """The end of the server's standard error, without what its command keeps secret."""
        said = str(self._last_words or "")
        for word in self._options.command:
            secret = word.partition("=")[2]
            said = said.replace(secret, "...") if secret else said
        said = "; ".join(map(_without_secrets, clean_text(said).split(" | ")))
        return f"; its standard error ends: {said}" if said else ""

    # --- in the player's thread ---

    def call(self, calls: Sequence[ServerCall]) -> list[ToolResult]:
        """Make the calls concurrently; results are in the order of the calls."""
        return asyncio.run_coroutine_threadsafe(self._all(calls), self._loop).result()

    def close(self) -> None:
        """May be called more than once."""
        self._over.set()
        if hasattr(self, "_closing"):
            with suppress(RuntimeError):  # the loop may be gone by now
                self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(_STOP_S)


class _Kept:
    """Cache of the latest successful results."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._results: OrderedDict[str, ToolResult] = OrderedDict()

    async def get(self, key: str, make: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        with self._lock:
            if key in self._results:
                return self._results[key]
        made = await make()
        with self._lock:
            if made.good:
                self._results[key] = made
            if len(self._results) > _MOST_KEPT:
                self._results.popitem(last=False)
        return made


@cache  # one for each server, whichever episode asks
def _kept(server: str) -> _Kept:
    return _Kept()


@dataclass(frozen=True, slots=True)
class Scratch:
    """An episode's folder, called `{scratch}` in all that the agent says and reads: its path is never the same."""

    path: str

    def fill_in(self, value: Any) -> Any:
        """Put the folder's path in place of its name, in all texts of a value."""
        if isinstance(value, str):
            return value.replace(_NAME, self.path) if self.path else value
        if isinstance(value, list):
            return [self.fill_in(each) for each in value]
        return {key: self.fill_in(each) for key, each in value.items()} if isinstance(value, dict) else value

    def take_out(self, text: str) -> str:
        return text.replace(self.path, _NAME) if self.path else text


def _fill(scratch: Path, files: str) -> None:
    """Make the folder, with a copy of a user's files if there are any."""
    if files:
        shutil.copytree(Path(files).expanduser(), scratch, symlinks=True)
    else:
        scratch.mkdir()


def _place(word: str, scratch: Scratch, *, first: bool) -> str:
    """A word of a command as seen from where the server is started: a file of ours by its full path."""
    ours = word.startswith(("./", "../")) or (not first and os.path.isfile(word))
    return os.path.abspath(word) if ours else str(scratch.fill_in(word))


def _text(given: Any) -> str:
    parts = [getattr(part, "text", None) or f"[{part.type}]" for part in given.content]
    if not parts and given.structured_content is not None:
        parts = [json.dumps(given.structured_content, ensure_ascii=False)]
    return "\n".join(parts)


def clean_text(text: str) -> str:
    """Remove control characters and cut the text to a readable length."""
    shown = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text[: _LONGEST + 1])
    return shown if len(text) <= _LONGEST else f"{shown[:_LONGEST]} [cut]"


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {_without_secrets(str(error))}"[:200]


def _without_secrets(word: str) -> str:
    """Hide the values of `KEY=...` and the user in an address from users of a server."""
    return re.sub(r"(?s)(\w)=.+", r"\1=...", re.sub(r"//[^/\s]*@", "//", word))
