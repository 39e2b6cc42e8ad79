"""How rows of packed sequences go through a model: together where it keeps them apart, else one by one."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...learning.packing import MaskPattern, PackedRow, UnsupportedAttention, packed_attention

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "ATTENTION",
    "OWN_ATTENTION",
    "RowKind",
    "RowNetwork",
    "RowReader",
    "find_backbone",
    "record_attention",
    "register_attention",
]

ATTENTION, OWN_ATTENTION = "agym_packed", "eager"


class RowKind(StrEnum):
    """What a row holds and what the model gets to know of it."""

    PACKED = "several sequences, kept apart by attention"
    BORDERED = "several sequences, with their borders for layers that are no attention"
    ALONE = "one sequence"
    OWN = "one sequence, for the model's own attention"

    @property
    def is_alone(self) -> bool:
        return self in (RowKind.ALONE, RowKind.OWN)


def find_backbone(causal: PreTrainedModel) -> PreTrainedModel:
    """Return what comes before the output layer."""
    # where the prefix is that of a larger model, `base_model` is the whole again
    found: Any = getattr(causal, "model", causal) if causal.base_model is causal else causal.base_model
    return found  # type: ignore[no-any-return]


class RowReader:
    """The backbone of a model, for rows of a kind."""

    def __init__(self, backbone: PreTrainedModel) -> None:
        self.backbone = backbone
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
        return (RowKind.ALONE, RowKind.OWN) if _has_lengthening_positions(self.backbone) else tuple(RowKind)

    def use(self, kind: RowKind) -> None:
        self.kind = kind
        name = OWN_ATTENTION if kind is RowKind.OWN else ATTENTION
        for module in self.backbone.modules():
            config: Any = getattr(module, "config", None)
            if hasattr(config, "_attn_implementation"):
                config._attn_implementation = name

    def hidden_states(self, row: PackedRow) -> Tensor:
        """Return the last hidden state of each token of a row."""
        return self._run(row.ids_T[None], **self._about(row))[0]

    def read_plainly(self, ids_BL: Tensor, mask_BL: Tensor | None = None) -> Tensor:
        """Return what the model itself makes of sequences below each other."""
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
    """The borders of sequences, in the words of the kernels of recurrent and convolutional layers."""
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


def _has_lengthening_positions(backbone: nn.Module) -> bool:
    """Whether rotary positions depend on the longest sequence of a row."""
    kinds = [getattr(module, "rope_type", None) for module in backbone.modules()]
    flat = [kind for each in kinds for kind in (each.values() if isinstance(each, dict) else [each])]
    return any("dynamic" in kind or kind == "longrope" for kind in flat if isinstance(kind, str))


# --- attention -----------------------------------------------------------------------------------------------------


def register_attention(attention: Callable[..., Any] = packed_attention) -> None:
    """Make packed attention known to `transformers`; doing it again changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, _describe_mask)


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
    """The mask that a model asks for, to be drawn for single sequences and only where it is more than causal."""
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
