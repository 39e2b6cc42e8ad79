"""Reads files of recorded episodes, of every version, also while a run appends to them; knows nothing about a run.

A file is plain JSON lines (`.jsonl`), or gzip members of such lines, one for each step (`.jsonl.gz`). A member's header
holds its step and its length, so that a reader seeks from one to the next without decompressing any; other programs
(`zcat`) skip that field. A line or a member that is not whole yet is left for the next read.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ...envs.pictures import LARGEST_PICTURE, is_picture

__all__ = [
    "EPISODES",
    "MEDIA",
    "TRAIN_LOG",
    "Chunk",
    "DamagedEpisode",
    "Member",
    "compress_member",
    "episode_files",
    "list_members",
    "picture_name",
    "read_chunks",
    "read_line",
    "read_picture",
]

EPISODES = "episodes"
MEDIA = "media"
"""Folder of pictures among the episodes; each is named by its hash."""
TRAIN_LOG = "train.jsonl.gz"
"""All training episodes of a run; a file of its own for each evaluation."""

_HEADER = struct.Struct("<4sIBBH2sHQQ")
"""Of a member: gzip's own ten bytes, then one extra field with the step and the length of the whole member."""
_MAGIC = b"\x1f\x8b\x08\x04"
_TRAILER = struct.Struct("<II")
_FIELD, _FIELD_BYTES = b"AG", 16
_UNKNOWN_SYSTEM = 255
_LEVEL = 4
"""Of compression: half the time of zlib's default, and a twentieth more bytes."""
_BLOCK = 1 << 22
"""Bytes of a plain file that are read at a time."""
_LARGEST = 1 << 30
"""Bytes of one line, or of one member decompressed: beyond it a file was not written by a run."""


class DamagedEpisode(ValueError):
    """A file does not hold what was read there before, or holds what no run wrote."""


@dataclass(frozen=True, slots=True)
class Member:
    """A gzip member: the episodes of one step."""

    step: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines that stand next to each other, and where to read on."""

    start: int
    end: int
    data: bytes
    """Lines, each with its end."""
    is_member: bool
    """Whether the lines are found by their place in this member rather than in the file."""
    problem: str = ""
    """Why there are no lines where there should be some."""


def episode_files(folder: Path) -> list[Path]:
    """List the files of a folder of episodes, by name."""
    return sorted(path for path in folder.glob("*.jsonl*") if path.name.endswith((".jsonl", ".jsonl.gz")))


def picture_name(data: bytes) -> str:
    """The name of a picture, without its ending."""
    return hashlib.sha256(data).hexdigest()


def read_picture(folder: Path, name: str) -> bytes | None:
    """Read a picture of a folder of episodes; None where there is none, or its file is not what its name says."""
    if re.fullmatch(r"[0-9a-f]{64}", name) is None:
        return None
    file = folder / MEDIA / f"{name}.png"
    try:
        data = file.read_bytes() if file.is_file() and file.stat().st_size <= LARGEST_PICTURE else b""
    except OSError:
        return None
    return data if is_picture(data) and picture_name(data) == name else None


def read_chunks(path: Path, start: int = 0) -> Iterator[Chunk]:
    """Read whole lines from a place where an earlier chunk ended; nothing of a file that is gone."""
    try:
        with path.open("rb") as file:
            yield from (_read_members if path.suffix == ".gz" else _read_plain)(file, start)
    except FileNotFoundError:
        return


def read_line(path: Path, start: int, inner: int, length: int) -> bytes:
    """Read one line: by its place in the file, or in the member that starts there."""
    with path.open("rb") as file:
        if path.suffix != ".gz":
            file.seek(start + inner)
            return file.read(min(length, _LARGEST))
        member = _member_at(file, start, path.stat().st_size)
        if member is None:
            raise DamagedEpisode(f"'{path}' has no member at byte {start} any more")
        return _decompress(file, member)[inner : inner + length]


def _read_plain(file: BinaryIO, start: int) -> Iterator[Chunk]:
    file.seek(start)
    rest = b""
    while block := file.read(_BLOCK):
        rest += block
        if len(rest) > _LARGEST:
            raise DamagedEpisode(f"'{file.name}' has a line of more than {_LARGEST:,} bytes")
        if end := rest.rfind(b"\n") + 1:
            yield Chunk(start, start + end, rest[:end], is_member=False)
            start, rest = start + end, rest[end:]


# --- members -------------------------------------------------------------------------------------------------------


def compress_member(step: int, lines: bytes) -> bytes:
    """Compress the lines of a step as one member."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = packer.compress(lines) + packer.flush()
    length = _HEADER.size + len(body) + _TRAILER.size
    extra = 4 + _FIELD_BYTES
    header = _HEADER.pack(_MAGIC, 0, 0, _UNKNOWN_SYSTEM, extra, _FIELD, _FIELD_BYTES, step, length)
    return header + body + _TRAILER.pack(zlib.crc32(lines), len(lines) & 0xFFFFFFFF)


def list_members(path: Path) -> list[Member]:
    """List the members that are whole, up to the first that is not."""
    with path.open("rb") as file:
        return list(_walk(file, 0))


def _walk(file: BinaryIO, start: int) -> Iterator[Member]:
    size = file.seek(0, 2)
    while (member := _member_at(file, start, size)) is not None:
        yield member
        start = member.end


def _member_at(file: BinaryIO, start: int, size: int) -> Member | None:
    """The whole member at a place of a file."""
    file.seek(start)
    head = file.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return None
    magic, _, _, _, _, field, field_bytes, step, length = _HEADER.unpack(head)
    is_ours = (magic, field, field_bytes) == (_MAGIC, _FIELD, _FIELD_BYTES)
    if not is_ours or not _HEADER.size + _TRAILER.size <= length <= size - start:
        return None
    return Member(step, start, start + length)


def _read_members(file: BinaryIO, start: int) -> Iterator[Chunk]:
    for member in _walk(file, start):
        try:
            data, problem = _decompress(file, member), ""
        except (DamagedEpisode, zlib.error) as error:
            data, problem = b"", f"the episodes of step {member.step} are damaged: {error}"
        yield Chunk(member.start, member.end, data, is_member=True, problem=problem)


def _decompress(file: BinaryIO, member: Member) -> bytes:
    file.seek(member.start + _HEADER.size)
    packed = file.read(member.end - member.start - _HEADER.size)
    check, length = _TRAILER.unpack(packed[-_TRAILER.size :])
    if length > _LARGEST:
        raise DamagedEpisode(f"{length:,} bytes in one member")
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    data = unpacker.decompress(packed[: -_TRAILER.size], length + 1)
    if len(data) != length or zlib.crc32(data) != check:
        raise DamagedEpisode("the checksum of a member is another")
    return data
