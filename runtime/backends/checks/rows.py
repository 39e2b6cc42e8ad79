"""How rows of packed sequences go through a model: common prefixes once, sequences together if the model keeps them
apart, else one by one; whole rows, or a slice of the tokens on each rank of a group."""

from __future__ import annotations

import inspect
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...learning.packing import MaskPattern, PackedRow, UnsupportedAttention, pack, packed_attention
from ...protocols import TrainSequence

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..sequence_parallel import SequenceGroup

__all__ = [
    "ATTENTION",
    "DIVIDED_ATTENTION",
    "OWN_ATTENTION",
    "RowKind",
    "RowNetwork",
    "RowReader",
    "RowSlice",
    "find_backbone",
    "find_dropout",
    "record_attention",
    "register_attention",
]

ATTENTION, DIVIDED_ATTENTION, OWN_ATTENTION = "agym_packed", "agym_packed_divided", "eager"


class RowKind(StrEnum):
    """What a row holds and what the model is told about it."""

    TREE = "several sequences, what they begin with in common once"
    PACKED = "several sequences, kept apart by attention"
    BORDERED = "several sequences, with their borders for layers that are no attention"
    ALONE = "one sequence"
    OWN = "one sequence, for the model's own attention"
    DIVIDED = "several sequences, of whose tokens each rank of a group has a slice"

    @property
    def is_alone(self) -> bool:
        return self in (RowKind.ALONE, RowKind.OWN)


_ATTENTIONS = {RowKind.OWN: OWN_ATTENTION, RowKind.DIVIDED: DIVIDED_ATTENTION}


@dataclass(frozen=True, slots=True, eq=False)
class RowSlice:
    """The places, of those asked for in a row, that this rank computes."""

    group: SequenceGroup
    own_M: Tensor
    """Their indices among the places asked for."""
    number: int
    """Places in the whole row."""

    def select(self, values_N: Tensor) -> Tensor:
        """Return those of the whole row's values that are at this rank's places."""
        return values_N.index_select(0, self.own_M)

    def join(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Return what all ranks computed, with a gradient for this rank's own."""
        return self.group.join(self.own_M, torch.stack(values, 1), self.number).unbind(1)


class WholeRow:
    """All places of a row."""

    def select(self, values_N: Tensor) -> Tensor:
        return values_N

    def join(self, *values: Tensor) -> tuple[Tensor, ...]:
        return values


def find_backbone(causal: PreTrainedModel) -> PreTrainedModel:
    """Return what comes before the output layer."""
    # where the prefix is that of a larger model, `base_model` is the whole again
    found: Any = getattr(causal, "model", causal) if causal.base_model is causal else causal.base_model
    return found  # type: ignore[no-any-return]


class RowReader:
    """The backbone of a model, for rows of a kind."""

    def __init__(
        self, backbone: PreTrainedModel, group: SequenceGroup | None = None, *, shares_prefixes: bool = True
    ) -> None:
        """`group` are the ranks that are to divide rows; `shares_prefixes` tries to compute common prefixes once, in
        whole rows."""
        self.backbone = backbone
        self.group = group
        self.shares_prefixes = shares_prefixes and group is None
        self.kind = RowKind.PACKED
        parameters = inspect.signature(backbone.forward).parameters
        self._names = set(parameters)
        self._passes_on = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())

    @property
    def kinds(self) -> tuple[RowKind, ...]:
        """What to try, the fastest first."""
        if not self._passes_on:
            return (RowKind.OWN,)
        # a length that changes the positions of a whole row may change those of a shorter sequence in it
        if _has_lengthening_positions(self.backbone):
            return (RowKind.ALONE, RowKind.OWN)
        shared = (RowKind.TREE,) if self.shares_prefixes and find_dropout(self.backbone) is None else ()
        return (*shared, RowKind.PACKED, RowKind.BORDERED, RowKind.ALONE, RowKind.OWN)

    def pack(self, sequences: Sequence[TrainSequence], capacity: int, device: torch.device) -> list[PackedRow]:
        """Pack sequences into rows of the kind."""
        capacity = 0 if self.kind.is_alone else capacity
        return pack(sequences, capacity, device, shares_prefixes=self.kind is RowKind.TREE)

    def use(self, kind: RowKind) -> None:
        self.kind = kind
        name = _ATTENTIONS.get(kind, ATTENTION)
        for module in self.backbone.modules():
            config: Any = getattr(module, "config", None)
            if hasattr(config, "_attn_implementation"):
                config._attn_implementation = name

    def hidden_states(self, row: PackedRow) -> Tensor:
        """Return the last hidden state of each token of a row, or of this rank's slice."""
        ids = row.ids_T if self._dividing is None else self._dividing.slice(row.ids_T)
        return self._run(ids[None], **self._about(row))[0]

    def read(self, row: PackedRow, places_N: Tensor | None = None) -> tuple[Tensor, RowSlice | WholeRow]:
        """Return the last hidden states at the given places (or all) that this rank computes, and which those are."""
        hidden_LD = self.hidden_states(row)
        if self._dividing is None:
            return hidden_LD if places_N is None else hidden_LD.index_select(0, places_N), WholeRow()
        places_N = torch.arange(len(row.ids_T), device=row.ids_T.device) if places_N is None else places_N
        own_M, there_M = self._dividing.find_own(places_N, len(row.ids_T))
        return hidden_LD.index_select(0, there_M), RowSlice(self._dividing, own_M, len(places_N))

    @property
    def _dividing(self) -> SequenceGroup | None:
        return self.group if self.kind is RowKind.DIVIDED else None

    def read_plainly(self, ids_BL: Tensor, mask_BL: Tensor | None = None) -> Tensor:
        """Return the model's own output for a batch of sequences, one per line."""
        return self._run(ids_BL, **({} if mask_BL is None else {"attention_mask": mask_BL}))

    def _run(self, ids_BL: Tensor, **more: Any) -> Tensor:
        arguments = {"use_cache": False, **more}
        known = {name: value for name, value in arguments.items() if self._passes_on or name in self._names}
        hidden_BLD: Tensor = self.backbone(input_ids=ids_BL, **known).last_hidden_state
        return hidden_BLD

    def _about(self, row: PackedRow) -> dict[str, Any]:
        if self.kind is RowKind.OWN:
            return {}
        known: dict[str, Any] = {"position_ids": row.positions_T[None], "attention_mask": None, "layout": row.layout}
        if self._dividing is not None:
            positions = self._dividing.slice(row.positions_T)[None]
            # without a mask `transformers` looks for the borders of sequences in the positions, and finds a slice's
            return known | {"position_ids": positions, "attention_mask": torch.ones_like(positions)}
        return known | (_find_borders(row) if self.kind is RowKind.BORDERED else {})


class RowNetwork(nn.Module):
    """A network over rows."""

    rows: RowReader

    def forward(self, row: PackedRow | Callable[[], Any], *inputs: Any) -> Any:
        # a check runs what it compares in here, where an engine has gathered the weights
        return row() if callable(row) else self.compute(row, *inputs)

    @abstractmethod
    def compute(self, row: PackedRow, *inputs: Any) -> Any: ...

    @abstractmethod
    def check(self, run: Callable[[Callable[[], Any]], Any]) -> list[str]: ...


def _find_borders(row: PackedRow) -> dict[str, Any]:
    """The borders of sequences, under the names that kernels of recurrent and convolutional layers use."""
    starts_T = row.positions_T == 0
    starts_S = torch.nonzero(starts_T)[:, 0]
    borders = torch.cat([starts_S, starts_S.new_tensor([len(starts_T)])]).int()
    longest = row.layout.spread_SL.shape[1]
    return {
        "seq_idx": (starts_T.cumsum(0) - 1).int()[None],
        "cu_seq_lens_q": borders,
        "cu_seq_lens_k": borders,
        "max_length_q": longest,
        "max_length_k": longest,
    }


def find_dropout(backbone: nn.Module) -> str | None:
    """Find a layer with dropout or jitter: sequences that share a token would share the draw."""
    for module in backbone.modules():
        draws = r"p|.*(drop|jitter).*" if isinstance(module, nn.modules.dropout._DropoutNd) else r".*(drop|jitter).*"
        shares = [value for name, value in vars(module).items() if re.fullmatch(draws, name)]
        if any(isinstance(share, float) and share > 0 for share in shares):
            return type(module).__name__
    return None


def _has_lengthening_positions(backbone: nn.Module) -> bool:
    """Whether rotary positions depend on the longest sequence of a row."""
    kinds = [getattr(module, "rope_type", None) for module in backbone.modules()]
    flat = [kind for each in kinds for kind in (each.values() if isinstance(each, dict) else [each])]
    return any("dynamic" in kind or kind == "longrope" for kind in flat if isinstance(kind, str))


# --- attention -----------------------------------------------------------------------------------------------------


def register_attention(attention: Callable[..., Any] = packed_attention, name: str = ATTENTION) -> None:
    """Make packed attention known to `transformers`; doing it again changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, _describe_mask)


@contextmanager
def record_attention() -> Iterator[set[nn.Module]]:
    """Collect the layers that attend by packed attention."""
    from transformers import AttentionInterface

    attention, attending = AttentionInterface()[ATTENTION], set[nn.Module]()

    def attend(module: nn.Module, *inputs: Any, **more: Any) -> Any:
        attending.add(module)
        return attention(module, *inputs, **more)

    register_attention(attend)
    try:
        yield attending
    finally:
        register_attention(attention)


def _describe_mask(
    *,
    mask_function: Callable[..., Any],
    local_size: int | None = None,
    use_vmap: bool = False,
    device: torch.device | None = None,
    **others: Any,
) -> MaskPattern:
    """The mask that a model asks for, to be built for single sequences and only where it is more than causal."""
    from transformers.masking_utils import sdpa_mask

    if "allow_is_bidirectional_skip" in others:
        raise UnsupportedAttention(f"'{type(others['config']).__name__}' asks for attention that is not causal")

    def draw(length: int) -> Tensor:
        # the longest sequence stands first in a row, so its tokens are the first of the row as well
        pattern = sdpa_mask(
            batch_size=1,
            q_length=length,
            kv_length=length,
            mask_function=mask_function,
            allow_is_causal_skip=False,
            use_vmap=use_vmap,
            device=device or "cpu",
        )
        assert pattern is not None, "only a mask that may be skipped is none"
        return pattern[0, 0]

    # `use_vmap` is set where a model has added a rule of its own
    return MaskPattern(limit=0 if use_vmap else local_size, draw=draw)
