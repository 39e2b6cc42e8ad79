"""What an engine's model holds after it took in new weights, compared tensor by tensor with what it was sent.

An engine fuses, casts, pads and packs. Where it keeps a tensor is read off its model, and values are compared by their
checksums. A layer packed for its processor has no readable values: it is given unit vectors and must return columns of
its weight, other columns at each sync. What cannot be mapped is left to the log-probs and listed by name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ...protocols import Checksum
from .checksums import describe_values, digest

__all__ = ["HeldWeights", "Shard", "WeightLayout", "WeightPlace", "lay_out_model"]

_COLUMNS = 16
"""Columns of a packed layer that are read at each sync."""
_SMALLEST = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, slots=True)
class Shard:
    """Which of an engine's workers holds what is compared, and of how many, where each has a part of every layer."""

    rank: int = 0
    of: int = 1

    def cut(self, full: int, held: int) -> slice | None:
        """Return the part of a dimension that a worker holds; several may hold the same one. None if there is none."""
        if not 0 < held <= full or full % held or self.of % (full // held):
            return None
        start = self.rank * (full // held) // self.of * held
        return slice(start, start + held)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPlace:
    """Where an engine keeps a tensor that it is sent."""

    read: Callable[[], Tensor | None]
    """What is held; None where it cannot be seen."""
    convert: Callable[[Tensor], Tensor]
    """What the engine makes of the tensor: the same, cast or scaled."""
    multiply: Callable[[Tensor], Tensor] | None = None
    """For a layer that may be packed: its answer to rows of input."""
    outputs: tuple[int | None, int | None] = (None, None)
    """Of that answer, the part that belongs to the tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLayout:
    """Places of the tensors of a sync."""

    places: Mapping[str, WeightPlace]
    unplaced: Sequence[str] = ()
    """Tensors that are sent and cannot be found in the engine."""
    unsent: Sequence[str] = ()
    """Parameters of the engine for which nothing is sent."""


class HeldWeights:
    """Compares what one engine is sent with what it holds, sync by sync."""

    def __init__(self) -> None:
        self.unproven: frozenset[str] = frozenset()
        """Kinds of tensors that only log-probs can check: the engine transforms them, or keeps them where they cannot
        be found."""
        self._is_first = True
        self._turn = 0
        self._before: Mapping[str, int] = {}

    @property
    def proven(self) -> list[str]:
        """Tensors that were compared at the last sync."""
        return [name for name in self._expected if _kind(name) not in self.unproven]

    def begin(self, layout: WeightLayout) -> None:
        self._layout = layout
        self._expected = dict[str, int]()
        self._columns = dict[str, tuple[int, Tensor]]()
        """Of tensors that are packed: their width, and the columns to compare this time."""

    def watch(self, name: str, tensor: Tensor, known: int) -> None:
        """Note what the engine has to hold of a tensor whose digest is known."""
        place = self._layout.places.get(name)
        if place is None:
            return
        converted = place.convert(tensor)
        self._expected[name] = known if converted is tensor else digest(converted)
        if place.multiply is not None:
            width = converted.shape[1]
            self._columns[name] = width, converted[:, self._columns_now(width)].clone()

    def list_problems(self) -> list[str]:
        """Compare, once the engine took in everything."""
        wrong = {name: f"nothing was sent for '{name}'" for name in self._layout.unsent} | dict(self._compare())
        if self._is_first:
            self.unproven = self._find_transformed(wrong)
        self._is_first, self._before, self._turn = False, self._expected, self._turn + 1
        return [problem for name, problem in wrong.items() if _kind(name) not in self.unproven]

    def _compare(self) -> Iterator[tuple[str, str]]:
        answers = dict[Callable[[Tensor], Tensor], Tensor]()  # a fused layer gives that of several tensors
        for name, expected in self._expected.items():
            place = self._layout.places[name]
            held = place.read()
            if held is not None and (found := digest(held)) != expected:
                yield name, f"'{name}' is held with {describe_values(name, found, self._expected, self._before)}"
            elif place.multiply is not None:
                width, columns_OC = self._columns[name]
                if place.multiply not in answers:
                    answers[place.multiply] = place.multiply(_unit_vectors(width, self._columns_now(width), columns_OC))
                answer_OC = answers[place.multiply][:, slice(*place.outputs)].T.to(columns_OC.device)
                # sums of one weight and zeros are exact, except for numbers that a processor flushes to 0
                if not torch.allclose(answer_OC, columns_OC, rtol=0, atol=_SMALLEST):
                    yield name, f"'{name}' is packed with other values"

    def _find_transformed(self, wrong: Collection[str]) -> frozenset[str]:
        """Return kinds that differ in all layers: that comes from the architecture; a sync fault affects some.

        Whether all layers are wrong for another reason is left to the log-probs.
        """
        members = Counter(_kind(name) for name in (*self._layout.places, *self._layout.unsent))
        differing = Counter(_kind(name) for name in wrong)
        transformed = {kind for kind, count in differing.items() if count == members[kind] > 1}
        return frozenset(transformed.union(_kind(name) for name in self._layout.unplaced))

    def _columns_now(self, width: int) -> slice:
        start = self._turn * _COLUMNS % (-(-width // _COLUMNS) * _COLUMNS)
        return slice(start, min(start + _COLUMNS, width))


def _unit_vectors(width: int, places: slice, like: Tensor) -> Tensor:
    return torch.eye(width, dtype=like.dtype)[places]


def _kind(name: str) -> str:
    """Return a name without the number of its layer."""
    return re.sub(r"\.\d+\.", ".*.", name)


# --- where a model keeps what it is sent ---------------------------------------------------------------------------


def lay_out_model(model: nn.Module, sent: Mapping[str, Checksum], shard: Shard = Shard()) -> WeightLayout:
    """Find each tensor in an engine's model: under its own name, or in a layer that several are fused into."""
    rename = getattr(model, "hf_to_vllm_mapper", None)
    names = {name: name if rename is None else rename.get_rename_mapper().map_name(name) for name in sent}
    shapes = {names[name]: each.shape for name, each in sent.items()}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    rows = {name: (name, slice(0, shape[0] if shape else None)) for name, shape in shapes.items()}
    rows |= _find_fused(model, parameters, shapes, shard)
    answers = {name: _answer_of(layer) for name, layer in model.named_modules() if hasattr(layer, "cpu_linear")}
    places = dict[str, WeightPlace]()
    for name, renamed in names.items():
        parameter, part = rows[renamed]
        if parameter not in parameters:
            continue
        layer, kind = model.get_submodule(parameter.rpartition(".")[0]), parameter.rpartition(".")[2]
        find = _find_whole if shard.of == 1 else partial(_find_cut, shard=shard)
        cut = find(layer, parameters[parameter], part, shapes[renamed], fused=parameter != renamed)
        if cut is not None:
            places[name] = _place(layer, kind, cut, answers.get(parameter.removesuffix(".weight")))
    reached = {rows[renamed][0] for renamed in shapes}
    parts = {part for part, (parameter, _) in rows.items() if parameter in reached}
    return WeightLayout(
        places=places,
        unplaced=[name for name in sent if name not in places],
        unsent=sorted((parts - shapes.keys()) | (parameters.keys() - reached)),
    )


def _find_fused(
    model: nn.Module, parameters: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]], shard: Shard
) -> dict[str, tuple[str, slice]]:
    """Return the rows of fused parameters that belong to each part, in the order of the fusion."""
    found, fusions = dict[str, tuple[str, slice]](), getattr(model, "packed_modules_mapping", {})
    for parameter, held in parameters.items():
        layer, _, kind = parameter.rpartition(".")
        parent, _, leaf = layer.rpartition(".")
        parts = [f"{parent}.{part}.{kind}" for part in fusions.get(leaf, ())]
        if parameter in shapes or not any(part in shapes for part in parts):
            continue
        sizes = [shapes[part][0] if part in shapes else 0 for part in parts]
        if shard.of > 1:  # each worker holds a part of every one of them
            sizes = list(getattr(model.get_submodule(layer), "output_partition_sizes", ()))
        ends = list(accumulate(sizes))
        if len(sizes) != len(parts) or (
            held.numel() and ends[-1] != len(held) and all(part in shapes for part in parts)
        ):
            continue
        found |= {part: (parameter, slice(*span)) for part, span in zip(parts, pairwise([0, *ends]), strict=True)}
    return found


@dataclass(frozen=True, slots=True)
class _Cut:
    """Rows of what is held, and the part of the sent tensor that they hold."""

    rows: slice
    of: tuple[slice, ...] = ()
    """Empty for all of it."""


def _find_whole(layer: nn.Module, held: Tensor, rows: slice, shape: Sequence[int], *, fused: bool) -> _Cut | None:
    if not held.numel():
        return _Cut(rows) if hasattr(layer, "cpu_linear") else None
    if held.shape[1:] != shape[1:]:
        return None
    # only a vocabulary is padded
    fits = (
        fused
        or held.ndim == 0
        or rows.stop == len(held)
        or (hasattr(layer, "org_vocab_size") and rows.stop < len(held))
    )
    return _Cut(rows) if fits else None


def _find_cut(
    layer: nn.Module, held: Tensor, rows: slice, shape: Sequence[int], *, fused: bool, shard: Shard
) -> _Cut | None:
    if (vocabulary := getattr(layer, "shard_indices", None)) is not None:
        start, end = vocabulary.org_vocab_start_index, vocabulary.org_vocab_end_index
        return _Cut(slice(0, end - start), (slice(start, end),))
    if not held.numel() and not hasattr(layer, "cpu_linear"):
        return None
    packed: Any = layer
    own = list(held.shape) if held.numel() else [packed.output_size_per_partition, packed.input_size_per_partition]
    if fused:
        own[0] = rows.stop - rows.start
    cuts = [shard.cut(full, size) for full, size in zip(shape, own, strict=False)]
    if len(own) != len(shape) or None in cuts:
        return None
    return _Cut(rows if fused else slice(0, own[0]), tuple(cut for cut in cuts if cut is not None))


def _place(layer: nn.Module, kind: str, cut: _Cut, multiply: Callable[[Tensor], Tensor] | None) -> WeightPlace:
    dtype, rows = getattr(layer, kind).dtype, cut.rows

    def read() -> Tensor | None:
        held: Tensor = getattr(layer, kind).detach()  # a reload may put another in its place
        return None if not held.numel() else held[rows] if held.ndim else held

    def convert(tensor: Tensor) -> Tensor:
        return (tensor[cut.of] if cut.of else tensor).to(dtype)

    return WeightPlace(read=read, convert=convert, multiply=multiply, outputs=(rows.start, rows.stop))


def _answer_of(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the product of a layer on a CPU, which may be packed."""

    def multiply(vectors: Tensor) -> Tensor:
        product: Callable[..., Tensor] = layer.cpu_linear  # type: ignore[assignment]
        return product(vectors, layer.weight, None)

    return multiply
