"""A listening socket: made here, used here or in a child process."""

from __future__ import annotations

import socket

__all__ = ["listen", "url_of"]

_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; the system picks the port if it is 0."""
    listener = socket.create_server((host, port), backlog=_BACKLOG)
    # connections inherit it: a reply goes out in two small pieces, and waiting to join them costs 40 ms a step
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
