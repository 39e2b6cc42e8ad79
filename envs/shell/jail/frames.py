"""Messages between the jail and the outside: a JSON object and bytes, both with their length in front."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["read_frame", "write_frame"]

_LENGTHS = struct.Struct(">II")


def write_frame(fd: int, head: Mapping[str, Any], body: bytes = b"") -> None:
    data = json.dumps(head).encode()
    left = memoryview(_LENGTHS.pack(len(data), len(body)) + data + body)
    while left:
        left = left[os.write(fd, left) :]


def read_frame(fd: int, wait: Callable[[], None] = lambda: None) -> tuple[dict[str, Any], bytes] | None:
    """Read one message, calling `wait` before each read; None at the end of the stream."""
    lengths = _read(fd, _LENGTHS.size, wait)
    if lengths is None:
        return None
    of_head, of_body = _LENGTHS.unpack(lengths)
    head, body = _read(fd, of_head, wait), _read(fd, of_body, wait)
    return None if head is None or body is None else (json.loads(head), body)


def _read(fd: int, size: int, wait: Callable[[], None]) -> bytes | None:
    parts = []
    while size:
        wait()
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
