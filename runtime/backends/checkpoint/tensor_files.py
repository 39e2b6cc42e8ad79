"""Named tensors in safetensors files of bounded size, written one tensor at a time and read one at a time.

The order is that of the names, so that the same tensors make the same files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import torch
from torch import Tensor

from ...errors import RunError

__all__ = ["SHARD_BYTES", "TensorReader", "TensorShape", "write_tensors"]

SHARD_BYTES = 4 * 2**30
_ALIGNMENT = 8
"""Of the data in a file; a header is padded with spaces."""
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorShape:
    """What a file's header says about a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def write_tensors(
    folder: Path, shapes: Mapping[str, TensorShape], tensors: Iterable[tuple[str, Tensor]], shard_bytes: int
) -> int:
    """Write the tensors, which come in the order of `shapes`; return the number of files."""
    shards = list(_divide(shapes, shard_bytes))
    incoming = iter(tensors)
    for number, names in enumerate(shards, 1):
        with (folder / _file_name(number, len(shards))).open("wb") as file:
            file.write(_header({name: shapes[name] for name in names}))
            for name in names:
                _write(file, name, shapes[name], *next(incoming))
    return len(shards)


def _divide(shapes: Mapping[str, TensorShape], limit: int) -> Iterator[list[str]]:
    names, taken = list[str](), 0
    for name, shape in shapes.items():
        if names and taken + shape.bytes > limit:
            yield names
            names, taken = [], 0
        names.append(name)
        taken += shape.bytes
    yield names


def _header(shapes: Mapping[str, TensorShape]) -> bytes:
    entries, at = dict[str, Any](), 0
    for name, shape in shapes.items():
        entries[name] = {
            "dtype": _DTYPES[shape.dtype],
            "shape": list(shape.shape),
            "data_offsets": [at, at + shape.bytes],
        }
        at += shape.bytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _write(file: BinaryIO, name: str, shape: TensorShape, found: str, tensor: Tensor) -> None:
    if (found, tensor.dtype, tuple(tensor.shape)) != (name, shape.dtype, shape.shape):
        raise ValueError(f"expected tensor '{name}' as {shape}, got '{found}', {tensor.dtype} {tuple(tensor.shape)}")
    file.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _file_name(number: int, count: int) -> str:
    return f"state-{number:05d}-of-{count:05d}.safetensors"


class TensorReader:
    """The tensors of a folder, read when asked for; whatever does not fit is a RunError."""

    def __init__(self, folder: Path, num_files: int) -> None:
        from safetensors import SafetensorError, safe_open

        self._folder, self._files, self._around = folder, dict[str, Any](), ExitStack()
        for number in range(1, num_files + 1):
            path = folder / _file_name(number, num_files)
            try:
                file = self._around.enter_context(safe_open(path, framework="pt"))
            except (OSError, SafetensorError) as error:
                raise RunError(f"'{path}' cannot be read: {error}; resume from another checkpoint") from error
            self._files |= dict.fromkeys(file.keys(), file)

    @property
    def names(self) -> set[str]:
        return set(self._files)

    def read(self, name: str, shape: TensorShape) -> Tensor:
        from safetensors import SafetensorError

        if name not in self._files:
            raise RunError(f"'{self._folder}' lacks the tensor '{name}': it is of another model")
        try:
            tensor: Tensor = self._files[name].get_tensor(name)
        except (SafetensorError, ValueError, RuntimeError) as error:
            raise RunError(f"'{self._folder}': tensor '{name}' cannot be read: {error}") from error
        if (tensor.dtype, tuple(tensor.shape)) != (shape.dtype, shape.shape):
            raise RunError(
                f"'{self._folder}': tensor '{name}' is {tensor.dtype} {list(tensor.shape)}, the model has "
                f"{shape.dtype} {list(shape.shape)}: it is of another model"
            )
        return tensor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._around.close()
