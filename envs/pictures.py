"""Pictures of what is seen, for people who watch: PNG, small enough to keep one for each turn.

Nothing but the standard library draws here. A picture from elsewhere is checked before it is kept: one that is not a
PNG, is too large, or would fill a browser's memory, does not count.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

__all__ = ["LARGEST_PICTURE", "encode_png", "is_picture", "write_png"]

LARGEST_PICTURE = 200 * 1024
"""Bytes of a picture."""
_LONGEST_SIDE = 4096
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">I4sII")
"""Length and name of the first chunk, then width and height."""


def is_picture(data: bytes) -> bool:
    """Whether data begins as a PNG of a size that can be kept and shown."""
    start = len(_SIGNATURE)
    if not data.startswith(_SIGNATURE) or not start + _HEADER.size <= len(data) <= LARGEST_PICTURE:
        return False
    _, name, width, height = _HEADER.unpack_from(data, start)
    return bool(name == b"IHDR" and 0 < width <= _LONGEST_SIDE and 0 < height <= _LONGEST_SIDE)


def encode_png(pixels: Any) -> bytes | None:
    """Encode an array of rows of RGB bytes; of one that is too large, every second row and column, until it fits."""
    while min(pixels.shape[:2]) > 1:
        height, width = pixels.shape[:2]
        data = write_png(width, height, pixels[:, :, :3].astype("uint8").tobytes())
        if is_picture(data):
            return data
        pixels = pixels[::2, ::2]
    return None


def write_png(width: int, height: int, rgb: bytes) -> bytes:
    """Write pixels, row by row from the top, as a PNG."""
    rows = (rgb[start : start + 3 * width] for start in range(0, 3 * width * height, 3 * width))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
