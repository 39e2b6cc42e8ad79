"""Decoding of bytes to a Source: UTF-8 without a byte order mark; line ends stay, so that offsets match the file."""

from __future__ import annotations

import re

from ..diagnostics import Diagnostic
from ..source import Source

__all__ = ["MAX_BYTES", "decode", "without_surrogates"]

MAX_BYTES = 1 << 20
"""A recipe is a page or two; a larger file is something else."""

BOM = "\ufeff"
SURROGATE = re.compile("[\ud800-\udfff]")

# 32 before 16: the mark of UTF-32-LE begins with that of UTF-16-LE.
WIDE_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


def decode(name: str, data: bytes, *, key: str | None = None) -> Source | Diagnostic:
    """Decode a file; `name` is the name to show, `key` its identity in the library."""
    nowhere = Source(name, "", key=key).span(0, 0)
    if len(data) > MAX_BYTES:
        message = f"the file is larger than {MAX_BYTES >> 20} MiB"
        return Diagnostic(code="too-large", message=message, span=nowhere, help="is this a recipe?")
    wide = _wide(data)
    if wide is not None:
        message = f"the file is {wide}; recipes are UTF-8"
        return Diagnostic(code="not-utf8", message=message, span=nowhere, help="save the file as UTF-8")
    try:
        return Source(name, data.decode("utf-8").removeprefix(BOM), key=key)
    except UnicodeDecodeError as error:
        return _not_utf8(name, data, error, key)


def without_surrogates(text: str) -> str:
    """Replace surrogates, in which the system hides bytes of arguments and variables that are not UTF-8.

    Each becomes NUL, which can be printed and which no source may contain.
    """
    return SURROGATE.sub("\0", text)


def _not_utf8(name: str, data: bytes, error: UnicodeDecodeError, key: str | None) -> Diagnostic:
    # Latin-1 gives each stray byte a character, so that the excerpt shows the line, and is right for most such files.
    before = data[: error.start].decode("utf-8").removeprefix(BOM)
    source = Source(name, before + data[error.start :].decode("latin-1"), key=key)
    message = f"byte 0x{data[error.start]:02x} is not UTF-8"
    span = source.span(len(before), len(before) + 1)
    return Diagnostic(code="not-utf8", message=message, span=span, help="save the file as UTF-8")


def _wide(data: bytes) -> str | None:
    """Detect an encoding of two or four bytes per character."""
    for mark, encoding in WIDE_MARKS.items():
        if data.startswith(mark):
            return encoding
    looks_wide = len(data) >= 2 and len(data) % 2 == 0 and (data[:1] == b"\0") != (data[1:2] == b"\0")
    return "UTF-16" if looks_wide else None
