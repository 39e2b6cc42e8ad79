"""Pages for a browser on this machine: where they are served, what is printed about them, where their data are."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .shell import Shell, UsageError

if TYPE_CHECKING:
    from starlette.routing import Route

    from ...viewer.runs import Runs

__all__ = ["cache_folder", "check_port", "data_folder", "serve_pages", "writable_cache"]


def cache_folder(shell: Shell) -> Path:
    """For what can be made again: indexes of episodes."""
    return _user_folder(shell, "XDG_CACHE_HOME", ".cache") / "viewer"


def data_folder(shell: Shell) -> Path:
    """For what a person made: tags, played episodes."""
    return _user_folder(shell, "XDG_DATA_HOME", ".local/share")


def _user_folder(shell: Shell, variable: str, below_home: str) -> Path:
    home = shell.environ.get(variable) or str(Path(shell.environ.get("HOME") or Path.home()) / below_home)
    return Path(home) / "agym"


@contextmanager
def writable_cache(folder: Path) -> Iterator[Path]:
    """The folder, or a temporary one where it cannot be written: all threads are to read the same index."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        is_writable = False
    if is_writable:
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="agym-viewer-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)


def check_port(port: int | None) -> None:
    if port is not None and not 1 <= port <= 65535:
        raise UsageError("--port must be from 1 to 65535")


async def serve_pages(
    runs: Runs,
    shell: Shell,
    *,
    port: int | None,
    opens_browser: bool,
    more: Sequence[Route],
    abilities: Sequence[str],
    static: Path | None = None,
) -> None:
    """Serve until a signal; `static` is a folder with other pages than those of recorded runs."""
    from ...viewer.server import HOST, STATIC, create_viewer, serve_viewer

    if hasattr(os, "nice"):  # not on Windows
        os.nice(10)  # a run that trains on this machine has priority
    listener = _listen(HOST, port)
    port, token = listener.getsockname()[1], secrets.token_urlsafe()
    url = f"http://{HOST}:{port}/{token}/"

    def tell() -> None:
        shell.out.write(f"{url}\n")
        shell.out.write(f"from another machine: ssh -L {port}:{HOST}:{port} {_user()}{socket.gethostname()}\n")
        shell.out.flush()
        if opens_browser:
            # some browsers block the program that opens them
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    application = create_viewer(runs, port=port, token=token, static=static or STATIC, more=more, abilities=abilities)
    await serve_viewer(application, listener, tell)


def _listen(host: str, port: int | None) -> socket.socket:
    from ...envs.listener import listen

    try:
        return listen(host, port or 0)
    except OSError as error:
        problem = os.strerror(error.errno or 0)
        raise UsageError(f"--port {port}: {problem}; without --port a free one is taken") from error


def _user() -> str:
    try:
        return f"{getpass.getuser()}@"
    except (KeyError, OSError):  # a user without a name
        return ""
