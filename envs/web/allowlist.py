"""What pages may reach: the hosts of a scene, the files of its folder, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from mimetypes import guess_type
from pathlib import Path
from urllib.parse import unquote, urlsplit

from playwright.async_api import BrowserContext, Route, WebSocketRoute

__all__ = ["compile_outside", "fence"]


def compile_outside(hosts: Sequence[str]) -> re.Pattern[str]:
    """Pattern of every address outside these hosts, each a name with its port."""
    inside = "|".join(map(re.escape, hosts)) or r"\0"
    return re.compile(rf"^(?!(?:https?|wss?)://(?:{inside})(?:[/?#]|$)|(?:data|blob|about):)")


async def fence(context: BrowserContext, hosts: Sequence[str], folder: tuple[str, Path] | None) -> None:
    """Check every request of a context; those for the folder's host are answered from it."""
    elsewhere = compile_outside((*hosts, folder[0]) if folder else hosts)
    await context.route(elsewhere, _abort)
    if hosts:
        await context.route_web_socket(elsewhere, _close)
    if folder is not None:
        await context.route(f"http://{folder[0]}/**", _serving(folder[1]))


async def _abort(route: Route) -> None:
    await route.abort("addressunreachable")


async def _close(socket: WebSocketRoute) -> None:
    await socket.close()


def _serving(folder: Path) -> Callable[[Route], Awaitable[None]]:
    root = folder.resolve()

    async def serve(route: Route) -> None:
        file = (root / unquote(urlsplit(route.request.url).path).lstrip("/")).resolve()
        if file.is_relative_to(root) and file.is_file():
            await route.fulfill(body=file.read_bytes(), content_type=_content_type(file))
        else:
            await route.fulfill(status=404, body="There is no such page.")

    return serve


def _content_type(file: Path) -> str:
    kind = guess_type(file.name)[0] or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
