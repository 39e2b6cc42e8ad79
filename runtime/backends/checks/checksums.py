"""Checksums of weights, which tell a sampler that each tensor arrived complete, once and in this version.

A checksum is a sum modulo 2**64: of the tensor's bytes, eight at a time as one integer and their upper half as another,
each times an odd factor of its place. It takes little more than reading the tensor twice. One changed number is always
detected; several changed, swapped or reordered ones, except with a probability below 2**-30.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

import torch
from torch import Tensor

from ...protocols import Checksum, NamedTensors

__all__ = ["Receipt", "checksum", "checksums", "describe_values", "digest", "note_checksums"]

_PLACES = 1 << 15
"""Integers of a chunk: 256 KiB, which stays in a core's cache."""
_CHUNKS = defaultdict(lambda: 1 << 10, cpu=4)
"""Chunks at a time: what fits a CPU's cache with its upper half, or keeps a GPU busy."""


def digest(tensor: Tensor) -> int:
    """Return a number that depends on every byte and its place."""
    data = tensor.detach().contiguous().view(-1).view(torch.uint8)
    if data.storage_offset() % 8:
        data = data.clone()
    whole = data.numel() // 8 * 8
    sums_C = _sum_chunks(data[:whole].view(torch.int64))
    # the bytes left over from groups of eight are added as they are
    rest = int.from_bytes(bytes(data[whole:].tolist()), "little")
    total = rest
    for each in sums_C.tolist():
        total = (total * _MIX + each) % 2**64
    return total


_MIX = 0x9E3779B97F4A7C15
"""Odd, so that the sum of no chunk is lost."""


def _sum_chunks(groups_N: Tensor) -> Tensor:
    """Return a sum for each chunk; the last may be shorter."""
    num = groups_N.numel() // _PLACES
    whole, last = groups_N[: num * _PLACES].view(num, _PLACES), groups_N[num * _PLACES :]
    return torch.cat(
        [*(_sum_places(part) for part in whole.split(_CHUNKS[groups_N.device.type])), _sum_places(last[None])]
    )


def _sum_places(groups_CP: Tensor) -> Tensor:
    whole_P, upper_P = (factors[: groups_CP.shape[1]] for factors in _factors(groups_CP.device))
    # numbers with few digits differ in their upper bits alone, of which a product keeps few: so those count again
    return _multiply(groups_CP, whole_P) + _multiply(groups_CP >> 32, upper_P)


def _multiply(values_CP: Tensor, factors_P: Tensor) -> Tensor:
    if values_CP.device.type == "cpu":
        return torch.mv(values_CP, factors_P)
    return (values_CP * factors_P).sum(1)  # GPUs have no matrix product of integers


@lru_cache(maxsize=8)
def _factors(device: torch.device) -> Tensor:
    """Return two odd numbers for each place."""
    generator = torch.Generator().manual_seed(0)
    return (torch.randint(-(2**62), 2**62, (2, _PLACES), generator=generator) * 2 + 1).to(device)


def checksum(tensor: Tensor) -> Checksum:
    return Checksum(dtype=_dtype(tensor), shape=tuple(tensor.shape), digest=digest(tensor))


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def checksums(tensors: NamedTensors) -> dict[str, Checksum]:
    """Return what a sampler has to receive."""
    sent: dict[str, Checksum] = {}
    for _ in note_checksums(tensors, sent):
        pass
    return sent


def note_checksums(tensors: NamedTensors, sent: dict[str, Checksum]) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors on their way to a sampler; add to `sent` what it has to receive."""
    for name, tensor in tensors:
        if name in sent:
            raise ValueError(f"the learner has two tensors named '{name}'")
        sent[name] = checksum(tensor)
        yield name, tensor


class Receipt:
    """Inspects tensors as they pass from the learner to an engine."""

    def __init__(
        self,
        sent: Mapping[str, Checksum],
        before: Mapping[str, int],
        watch: Callable[[str, Tensor, int], None],
    ) -> None:
        """The digests in `sent` need not be known yet. `before` are those of the last version; `watch` gets each
        tensor, with the digest that it arrived with."""
        self._sent, self._before, self._watch = sent, before, watch
        self._arrived: dict[str, int] = {}
        self._misfits: dict[str, str] = {}

    def pass_on(self, tensors: NamedTensors) -> Iterator[tuple[str, Tensor]]:
        """Yield what an engine can take; what it cannot (unknown, twice, of another shape) would break it."""
        for name, tensor in tensors:
            if problem := self._find_misfit(name, tensor):
                self._misfits[name] = f"'{name}' {problem}"
                continue
            self._arrived[name] = digest(tensor)
            self._watch(name, tensor, self._arrived[name])
            yield name, tensor

    def _find_misfit(self, name: str, tensor: Tensor) -> str:
        if name not in self._sent:
            return "arrived, but was not sent"
        if name in self._arrived:
            return "arrived twice"
        sent, shape = self._sent[name], tuple(tensor.shape)
        if (sent.dtype, sent.shape) != (_dtype(tensor), shape):
            return f"was sent as {sent.dtype} {list(sent.shape)} and arrived as {_dtype(tensor)} {list(shape)}"
        return ""

    def list_problems(self, expected: Mapping[str, int]) -> list[str]:
        """Everything that went wrong on the way, once all has passed and the digests of what was sent are known."""
        wrong = [
            f"'{name}' arrived with {describe_values(name, found, expected, self._before)}"
            for name, found in self._arrived.items()
            if found != expected[name]
        ]
        missing = [name for name in self._sent if name not in self._arrived and name not in self._misfits]
        return [*wrong, *self._misfits.values(), *(f"'{name}' did not arrive" for name in missing)]


def describe_values(name: str, found: int, expected: Mapping[str, int], before: Mapping[str, int]) -> str:
    """Say whose values have the digest that was found, if that can be known."""
    if before.get(name) == found:
        return "the values of the version before"
    if other := next((other for other, each in expected.items() if each == found), None):
        return f"the values of '{other}'"
    return "other values"
