"""Which episode's processes a connection comes from, so that no process uses another episode's key unnoticed.

The kernel lists each connection with the number of its socket, and each process the sockets that it holds. Where it
lists none, as outside Linux, every connection is let in: the key is then the only check.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .guard import descendants

__all__ = ["Peers"]


class Peers:
    """Processes of the episodes under way."""

    def __init__(self) -> None:
        self._guards: dict[str, int] = {}
        self._known: dict[str, set[str]] = {}
        """Sockets that were found with the processes of an episode."""
        self.thieves: set[str] = set()
        """Keys of episodes whose processes used a key that is not theirs."""

    def add(self, key: str, pid: int) -> None:
        self._guards[key], self._known[key] = pid, set()

    def remove(self, key: str) -> None:
        for each in (self._guards, self._known):
            each.pop(key, None)

    def admits(self, key: str, scope: Mapping[str, Any]) -> bool:
        """Return whether a connection is one of the episode's own processes, and blame the episode that owns it."""
        socket = _find_socket(scope)
        if socket is None or key not in self._guards or socket in self._known[key]:
            return True
        if _holds(self._guards[key], socket):
            self._known[key].add(socket)
            return True
        self.blame(scope)
        return False

    def blame(self, scope: Mapping[str, Any]) -> None:
        """Note whose process has sent a key that is not its own."""
        socket = _find_socket(scope)
        self.thieves |= {key for key, pid in self._guards.items() if socket is not None and _holds(pid, socket)}


def _find_socket(scope: Mapping[str, Any]) -> str | None:
    """Return the number of the socket at the other end of a request's connection."""
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return None
    ends = [f"{_hex(client[0])}:{client[1]:04X}", f"{_hex(server[0])}:{server[1]:04X}"]
    with suppress(OSError, ValueError):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1:3] == ends and fields[9] != "0":
                return fields[9]
    return None


def _hex(host: str) -> str:
    return "".join(f"{int(part):02X}" for part in reversed(host.split(".")))


def _holds(guard: int, socket: str) -> bool:
    return any(f"socket:[{socket}]" in _open_files(pid) for pid in descendants(guard))


def _open_files(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")
