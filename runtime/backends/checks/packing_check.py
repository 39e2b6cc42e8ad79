"""Self-test of a model when its engine is built: packed sequences against the same ones padded and alone.

Short sequences go through the model's own attention first, alone and padded; the output of packed rows must agree with
it. If a row that holds their common prefixes once differs, each sequence gets its own. A layer that lets sequences mix
(recurrent, convolutional) gets their borders if that is enough, else one sequence per row; attention that differs from
the model's own ends the run. If ranks divide rows between them, their joined output must agree too, so a layer that
lets tokens mix outside attention ends it as well. All ranks do the same passes, nothing is drawn from a random
generator, and the model stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn

from ...errors import RunError
from ...learning.loss import Head
from ...learning.packing import PackedRow, UnsupportedAttention
from ...protocols import TrainSequence
from .rows import RowKind, RowNetwork, RowReader, find_dropout, record_attention

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["ROUNDING", "choose_head", "choose_rows"]

T = TypeVar("T")
_Run = Callable[[Callable[[], T]], T]
"""Runs a function where the network's weights are whole."""

ROUNDING: Mapping[torch.dtype, float] = {torch.float32: 0.005, torch.bfloat16: 0.3, torch.float16: 0.1}
"""Largest relative difference of a token's hidden state that counts as rounding. In bf16 dense models stay below .05,
and layers that mix sequences are above .5 (`bench/packing.py`)."""
_DRAWS = 3
"""Rounding that routes a token to another expert exceeds the bound in one draw, a fault does so in every draw."""
_LENGTHS = (24, 17)
_PREFIX = 9
"""The last sequence is the first one's beginning, so it shows as well whether a model reads ahead."""
_BRANCHES = ((20, 3), (8, 7))
"""Further sequences: tokens that each has in common with the first, and its own. In a tree they branch off twice."""


def choose_rows(network: RowNetwork, run: _Run[Any]) -> str | None:
    """Choose the rows that the network's model computes right, the fastest first; return a note if they hold one
    sequence each, or compute common prefixes more than once. Raises RunError if there are none."""
    note = _choose_whole_rows(network, run)
    if network.rows.group is not None:
        _divide_rows(network, run, note)
    return note


def _divide_rows(network: RowNetwork, run: _Run[Any], note: str | None) -> None:
    """Let ranks divide rows. Raises RunError if together they do not compute what one does."""
    reader = network.rows
    name = type(reader.backbone).__name__
    advice = "write 'hardware.train.sequence_parallel: 1', or use a model of another architecture"
    if reader.kind is not RowKind.PACKED:
        reason = "it needs the borders of sequences outside attention" if note is None else note.removeprefix("model: ")
        raise RunError(f"model: ranks cannot divide the rows of '{name}' between them: {reason}; {advice}")
    with _undisturbed(network):
        trials = [_Trial(reader, run, seed) for seed in range(_DRAWS)]
        try:
            is_right = _agrees(trials, _Trial.compare_divided)
            reason = "a token's hidden state depends on others outside attention"
        except _OTHER_SIGNATURE as error:
            is_right, reason = False, str(error)[:200]
    if not is_right:
        raise RunError(f"model: ranks cannot divide the rows of '{name}' between them: {reason}; {advice}")
    reader.use(RowKind.DIVIDED)


def _choose_whole_rows(network: RowNetwork, run: _Run[Any]) -> str | None:
    reader, refusal, layer, mixing = network.rows, "", "", ""
    name = type(reader.backbone).__name__
    with _undisturbed(network):
        trials = [_Trial(reader, run, seed) for seed in range(_DRAWS)]
        if not _agrees(trials, lambda trial: _difference(trial.alone[-1], trial.alone[0][:_PREFIX])):
            raise RunError(f"model: '{name}' is not causal: a token's hidden state depends on later tokens")
        is_padding_safe = _agrees(trials, lambda trial: _difference(trial.read_padded(), torch.cat(trial.alone)))
        for kind in reader.kinds:
            try:
                is_right = _agrees(trials, partial(_Trial.compare, kind=kind))
            except _OTHER_SIGNATURE as error:
                refusal = f"{type(error).__name__}: {str(error)[:200]}"
                continue
            if is_right and (is_padding_safe or kind.is_alone):
                reader.use(kind)
                return _describe(reader, layer, mixing)
            found = _find_layer(network, trials[0], kind)
            if kind is RowKind.TREE:
                mixing = "" if found is None else found.name
                continue
            layer = layer if found is None else found.name
            if found is not None and found.is_packed_attention:
                refusal = f"packed attention differs from its own in '{layer}'"
                break
    reason = refusal or f"'{layer}' differs from itself alone"
    raise RunError(f"model: '{name}' cannot be trained on rows: {reason}; use a model of another architecture")


_OTHER_SIGNATURE = (TypeError, AttributeError, ValueError, IndexError, RuntimeError)
"""What an architecture raises if it does not accept what packed attention needs."""


class _Trial:
    """Sequences, longest first, and what the model makes of them."""

    def __init__(self, reader: RowReader, run: _Run[Any], seed: int) -> None:
        self._reader, self._run = reader, run
        self.bound = ROUNDING[reader.backbone.dtype]
        self.sequences = _make_sequences(reader.backbone, seed)
        self._alone: list[Tensor] = []

    @property
    def alone(self) -> list[Tensor]:
        """The hidden states of each sequence, by the model's own attention."""
        if not self._alone:
            self._reader.use(RowKind.OWN)
            self._alone = [self._read_alone(ids) for ids in self.sequences]
        return self._alone

    def _read_alone(self, ids: Tensor) -> Tensor:
        try:
            hidden: Tensor = self._run(lambda: self._reader.read_plainly(ids[None])[0])
        except _OTHER_SIGNATURE as error:
            name = type(self._reader.backbone).__name__
            raise RunError(f"model: '{name}' fails on plain text: {type(error).__name__}: {error}") from error
        return hidden

    def read_padded(self) -> Tensor:
        ids = nn.utils.rnn.pad_sequence(self.sequences, batch_first=True)
        mask = nn.utils.rnn.pad_sequence([torch.ones_like(each) for each in self.sequences], batch_first=True)
        self._reader.use(RowKind.OWN)
        hidden = self._run(lambda: self._reader.read_plainly(ids, mask))
        return torch.cat([each[: len(own)] for each, own in zip(hidden, self.sequences, strict=True)])

    def read_rows(self, kind: RowKind) -> Tensor:
        rows = self.make_rows(kind)
        hidden = torch.cat([self._run(partial(self._read_row, row)) for row in rows])
        return hidden[self.find_tokens(kind)]

    def _read_row(self, row: PackedRow) -> Tensor:
        hidden_MD, part = self._reader.read(row)
        (hidden_TD,) = part.join(hidden_MD)
        return hidden_TD

    def make_rows(self, kind: RowKind) -> list[PackedRow]:
        self._reader.use(kind)
        made = [_make_train_sequence(ids) for ids in self.sequences]
        return self._reader.pack(made, sum(map(len, self.sequences)), self.sequences[0].device)

    def find_tokens(self, kind: RowKind) -> Tensor:
        """Find the places of all sequences' tokens, one sequence after the other, in rows that are laid end to end."""
        rows, taken, places = self.make_rows(kind), 0, dict[int, Tensor]()
        for row in rows:
            places |= {member: path + taken for member, path in zip(row.members, row.layout.paths, strict=True)}
            taken += len(row.ids_T)
        return torch.cat([places[at] for at in range(len(self.sequences))])

    def read_each(self) -> None:
        """Read all sequences again, so that hooks can record the layers."""
        self._reader.use(RowKind.OWN)
        for ids in self.sequences:
            self._read_alone(ids)

    def compare_divided(self) -> float:
        expected = torch.cat(self.alone)
        return _difference(self.read_rows(RowKind.DIVIDED), expected)

    def compare(self, kind: RowKind) -> float:
        expected = torch.cat(self.alone)
        try:
            return _difference(self.read_rows(kind), expected)
        except UnsupportedAttention as error:
            raise RunError(f"model: {error}; use a model of another architecture") from error


def _agrees(trials: Sequence[_Trial], compare: Callable[[_Trial], float]) -> bool:
    return any(compare(trial) <= trial.bound for trial in trials)


def _describe(reader: RowReader, layer: str, mixing: str) -> str | None:
    kind = reader.kind
    if not kind.is_alone:
        return _describe_tree(reader, mixing)
    reason = f"'{layer}' would mix several" if layer else "its attention takes no borders of sequences"
    attention = ", with the model's own attention" if kind is RowKind.OWN else ""
    return f"model: rows hold one sequence each{attention}, because {reason}; updates are slower"


def _describe_tree(reader: RowReader, mixing: str) -> str | None:
    if reader.kind is RowKind.TREE or not reader.shares_prefixes:
        return None
    if (dropping := find_dropout(reader.backbone)) is not None:
        reason = f"'{dropping}' drops at random"
    else:
        reason = f"'{mixing}' differs from itself alone" if mixing else "the model takes no tree of sequences"
    return f"model: each sequence computes its own prefix, because {reason}; updates are slower"


# --- the sequences -------------------------------------------------------------------------------------------------


def _make_sequences(backbone: PreTrainedModel, seed: int) -> list[Tensor]:
    text = backbone.config.get_text_config()
    marks = [getattr(text, f"{which}_token_id", None) for which in ("pad", "bos", "eos")]
    special = {token for mark in marks for token in (mark if isinstance(mark, list) else [mark])}
    known = np.array([token for token in range(min(text.vocab_size, 5000)) if token not in special])
    draws = np.random.Generator(np.random.PCG64(seed))
    first, second = (torch.from_numpy(draws.choice(known, length)).to(backbone.device) for length in _LENGTHS)
    branches = [torch.cat([first[:common], second[:own]]) for common, own in _BRANCHES]
    return sorted([first, second, *branches, first[:_PREFIX]], key=len, reverse=True)


def _make_train_sequence(ids: Tensor) -> TrainSequence:
    mask = np.arange(len(ids)) > 0
    return TrainSequence(ids=ids.cpu().numpy().astype(np.int32), loss_mask=mask, advantages=mask.astype(np.float32))


def _difference(found: Tensor, expected: Tensor) -> float:
    """Largest relative difference of a token, over all ranks: all of them choose alike."""
    apart_T = (found.float() - expected.float()).norm(dim=-1) / expected.float().norm(dim=-1).clamp(min=1e-12)
    largest = torch.nan_to_num(apart_T, nan=torch.inf).max()
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
    return float(largest)


# --- the layer at fault --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Layer:
    name: str
    """Of its type."""
    is_packed_attention: bool


def _find_layer(network: RowNetwork, trial: _Trial, kind: RowKind) -> _Layer | None:
    """Find the innermost layer whose input agrees with that of single sequences and whose output does not."""
    backbone = network.rows.backbone
    with record_attention() as attending:
        packed = _trace(backbone, lambda: trial.read_rows(kind))
    alone = _trace(backbone, trial.read_each)
    tokens = trial.find_tokens(kind)
    for module, states in packed.items():
        if len(states[0]) <= int(tokens.max()):
            continue  # not a layer of all tokens
        inputs, outputs = states[0][tokens], states[1][tokens]
        own_inputs, own_outputs = alone.get(module, (inputs, inputs))
        is_comparable = inputs.shape == own_inputs.shape and outputs.shape == own_outputs.shape
        if is_comparable and _difference(inputs, own_inputs) <= trial.bound < _difference(outputs, own_outputs):
            # a module with a convolution inside is more than attention, and may well mix sequences
            is_pure = not any(isinstance(part, nn.Conv1d) for part in module.modules())
            return _Layer(type(module).__name__, module in attending and is_pure)
    return None


_Trace = dict[nn.Module, tuple[Tensor, Tensor]]


def _trace(backbone: nn.Module, read: Callable[[], Any]) -> _Trace:
    """Record the inputs and outputs of all layers in the order in which they end, one token per line."""
    calls: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}

    def record(module: nn.Module, inputs: Any, more: Mapping[str, Any], outputs: Any) -> None:
        given = _find_states([*inputs, *more.values()])
        made = _find_states(outputs if isinstance(outputs, tuple) else [outputs])
        if given is not None and made is not None and given.shape[:2] == made.shape[:2]:
            calls.setdefault(module, []).append((given[0], made[0]))

    hooks = [
        module.register_forward_hook(record, with_kwargs=True)
        for module in backbone.modules()
        # a block of PyTorch's own is part of a layer with a more telling name
        if module is not backbone and not type(module).__module__.startswith("torch.nn.")
    ]
    try:
        read()
    finally:
        for hook in hooks:
            hook.remove()
    return {
        module: (torch.cat([given for given, _ in parts]), torch.cat([made for _, made in parts]))
        for module, parts in calls.items()
    }


def _find_states(values: Sequence[Any]) -> Tensor | None:
    fitting = (value for value in values if isinstance(value, Tensor) and value.ndim == 3 and len(value) == 1)
    return next((value for value in fitting if value.is_floating_point()), None)


# --- logits --------------------------------------------------------------------------------------------------------

_FACTORS = {"logit_scale": 1, "logits_scaling": -1, "lm_head_multiplier": 1}
"""Names that configurations use for the factor of all logits; -1 for its inverse."""
_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")


def choose_head(
    network: RowNetwork, causal: PreTrainedModel, project: Callable[[Tensor, Head], Tensor], run: _Run[Any]
) -> Head:
    """Choose the way in which hidden states become the model's own logits. Raises RunError if none is known."""
    reader, kind = network.rows, network.rows.kind
    config = causal.config.get_text_config()
    factors = [float(getattr(config, name)) ** sign for name, sign in _FACTORS.items() if _is_set(config, name)]
    caps = [float(getattr(config, name)) for name in _CAPS if _is_set(config, name)]
    with _undisturbed(network):
        ids = _make_sequences(reader.backbone, 0)[-1]
        reader.use(RowKind.OWN)
        hidden, logits = run(lambda: (reader.read_plainly(ids[None])[0], causal(input_ids=ids[None]).logits[0]))
        reader.use(kind)
        for scale, cap in product([*factors, 1.0], [*caps, None]):
            head = Head(scale=scale, softcap=cap)
            try:
                found = run(partial(project, hidden, head))
            except RuntimeError:
                break  # of another width
            if found.shape == logits.shape and _difference(found, logits) <= ROUNDING[reader.backbone.dtype]:
                return head
    raise RunError(
        f"model: '{type(causal).__name__}' makes its logits in a way of its own in its output layer; "
        "use a model of another architecture"
    )


def _is_set(config: Any, name: str) -> bool:
    return bool(getattr(config, name, None))


# --- leaving no trace ----------------------------------------------------------------------------------------------


@contextmanager
def _undisturbed(network: nn.Module) -> Iterator[None]:
    """Evaluate without gradient; modes and random generators are as before afterwards."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng():
            yield
    finally:
        for module, is_training in modes:
            module.training = is_training
