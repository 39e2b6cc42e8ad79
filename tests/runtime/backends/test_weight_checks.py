"""Checksums of weights, and what an engine holds compared with what it was sent, in a made-up engine that fuses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import ClassVar

import pytest

torch = pytest.importorskip("torch")

from agym.runtime.backends.checks.checksums import Receipt, checksum, checksums, digest  # noqa: E402
from agym.runtime.backends.checks.held_weights import HeldWeights, Shard, lay_out_model  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from weight_sync import FAULTS  # noqa: E402

Weights = dict[str, Tensor]
HIDDEN, LAYERS, VOCAB, PADDED = 24, 3, 40, 64


# --- checksums


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (11000, 13)])
def test_every_bit_and_its_place_count(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    draw = random.Random(0)
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert digest(tensor.clone()) == digest(tensor)
    data = tensor.clone().view(-1).view(torch.uint8)
    for _ in range(20):
        at, bit = draw.randrange(len(data)), 1 << draw.randrange(8)
        data[at] ^= bit
        assert digest(data.view(dtype).view(shape)) != digest(tensor)
        data[at] ^= bit
    assert digest(data.view(dtype).view(shape)) == digest(tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_swap_of_any_two_numbers_is_found(dtype: torch.dtype) -> None:
    draw = random.Random(0)
    tensor = torch.zeros(70_000, dtype=dtype)
    for _ in range(100):
        one, other = draw.sample(range(len(tensor)), 2)
        tensor[one], tensor[other] = 1.0, 2.0
        ordered = digest(tensor)
        tensor[one], tensor[other] = 2.0, 1.0
        assert digest(tensor) != ordered


def test_a_checksum_is_of_values_and_not_of_where_they_lie() -> None:
    tensor = torch.randn(6, 5)
    assert digest(tensor.T) == digest(tensor.T.contiguous()) != digest(tensor)
    assert digest(tensor[1:, :]) == digest(tensor[1:, :].clone())
    assert checksum(tensor.bfloat16()).dtype == "bfloat16"
    assert checksum(tensor).shape == (6, 5)


def test_a_learner_with_two_tensors_of_one_name_is_refused() -> None:
    with pytest.raises(ValueError, match="two tensors named 'a'"):
        checksums([("a", torch.ones(2)), ("a", torch.ones(2))])


# --- what arrives


@pytest.fixture
def now() -> Weights:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=generator) for name, shape in _shapes()}


@pytest.fixture
def before() -> Weights:
    generator = torch.Generator().manual_seed(2)
    return {name: torch.randn(shape, generator=generator) for name, shape in _shapes()}


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        for name, rows in (("q_proj", HIDDEN), ("k_proj", 8), ("v_proj", 8), ("o_proj", HIDDEN)):
            yield f"model.layers.{layer}.attn.{name}.weight", (rows, HIDDEN)
        yield f"model.layers.{layer}.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def problems(now: Weights, before: Weights, arriving: list[tuple[str, Tensor]]) -> list[str]:
    known = {name: digest(tensor) for name, tensor in before.items()}
    sent = checksums(now.items())
    receipt = Receipt(sent, known, lambda *_: None)
    assert {name for name, _ in receipt.pass_on(arriving)} <= now.keys()
    return receipt.list_problems({name: each.digest for name, each in sent.items()})


def test_what_arrives_wrong_is_said_by_name(now: Weights, before: Weights) -> None:
    one, other, bias = "model.layers.1.attn.q_proj.weight", "model.layers.1.attn.o_proj.weight", "new.bias"
    assert problems(now, before, list(now.items())) == []
    assert problems(now, before, list((now | {one: before[one]}).items())) == [
        f"'{one}' arrived with the values of the version before"
    ]
    assert problems(now, before, list((now | {one: now[other]}).items())) == [
        f"'{one}' arrived with the values of '{other}'"
    ]
    assert problems(now, before, list((now | {one: now[one].T.contiguous()}).items())) == [
        f"'{one}' arrived with other values"
    ]
    assert problems(now, before, list((now | {one: now[one].half()}).items())) == [
        f"'{one}' was sent as float32 [24, 24] and arrived as float16 [24, 24]"
    ]
    assert problems(now, before, [*now.items(), (one, now[one]), (bias, now[one])]) == [
        f"'{one}' arrived twice",
        "'new.bias' arrived, but was not sent",
    ]
    assert problems(now, before, [item for item in now.items() if item[0] != one]) == [f"'{one}' did not arrive"]


# --- what is held


class Packed(nn.Module):
    """A layer that keeps its weight only as its processor likes it, if `packs`."""

    def __init__(self, rows: int, *, packs: bool) -> None:
        super().__init__()
        self._packs, self._rows = packs, rows
        self.take(torch.zeros(rows, HIDDEN))

    def take(self, weight: Tensor) -> None:
        self.weight = nn.Parameter(torch.empty(0) if self._packs else weight.clone())
        if self._packs:
            hidden = weight.T.contiguous()
            self.cpu_linear = lambda vectors, weight, bias: vectors @ hidden


class Engine(nn.Module):
    """Fuses q, k and v, pads the vocabulary and may pack."""

    packed_modules_mapping: ClassVar = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}

    def __init__(self, *, packs: bool) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(PADDED, HIDDEN)
        self.model.embed_tokens.org_vocab_size = VOCAB
        self.model.layers = nn.ModuleList(_layer(packs=packs) for _ in range(LAYERS))
        self.lm_head = nn.Embedding(PADDED, HIDDEN)
        self.lm_head.org_vocab_size = VOCAB

    @torch.no_grad()
    def load(self, weights: Weights) -> None:
        for layer, own in enumerate(self.model.layers):
            names = [f"model.layers.{layer}.attn.{part}_proj.weight" for part in "qkv"]
            if all(name in weights for name in names):
                own.attn.qkv_proj.take(torch.cat([weights[name] for name in names]))
            if (name := f"model.layers.{layer}.attn.o_proj.weight") in weights:
                own.attn.o_proj.take(weights[name])
            if (name := f"model.layers.{layer}.norm.weight") in weights:
                own.norm.weight.copy_(weights[name])
        for module, name in ((self.model.embed_tokens, "model.embed_tokens.weight"), (self.lm_head, "lm_head.weight")):
            if name in weights:
                module.weight[:VOCAB] = weights[name]


def _layer(*, packs: bool) -> nn.Module:
    layer = nn.Module()
    layer.attn, layer.norm = nn.Module(), nn.LayerNorm(HIDDEN, bias=False)
    layer.attn.qkv_proj, layer.attn.o_proj = Packed(HIDDEN + 16, packs=packs), Packed(HIDDEN, packs=packs)
    return layer


def synced(engine: Engine, held: HeldWeights, sent: Weights, loaded: Weights | None = None) -> list[str]:
    held.begin(lay_out_model(engine, checksums(sent.items())))
    for name, tensor in sent.items():
        held.watch(name, tensor, digest(tensor))
    engine.load(sent if loaded is None else loaded)
    return held.list_problems()


@pytest.mark.parametrize("packs", [False, True])
def test_healthy_syncs_pass_and_all_tensors_are_compared(now: Weights, before: Weights, packs: bool) -> None:
    engine, held = Engine(packs=packs), HeldWeights()
    for sent in (before, now, now, before):
        assert synced(engine, held, sent) == []
        assert held.proven == list(sent)
        assert held.unproven == frozenset()


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_inside_an_engine_are_found(
    now: Weights, before: Weights, fault: str, first: bool, packs: bool
) -> None:
    for seed in range(4):
        engine, held = Engine(packs=packs), HeldWeights()
        engine.load(before)
        if not first:
            assert synced(engine, held, before) == []
        wrong = FAULTS[fault](now, before, random.Random(seed))
        if wrong.keys() == now.keys() and all(torch.equal(wrong[name], now[name]) for name in now):
            continue  # there is no adapter here
        found = [synced(engine, held, now, wrong) for _ in range(2)]  # all columns of a packed layer: 16, then 8
        assert any(found), seed


def test_what_is_held_wrong_is_said_by_name(now: Weights, before: Weights) -> None:
    engine, held = Engine(packs=False), HeldWeights()
    synced(engine, held, before)
    name, twin = "model.layers.2.attn.k_proj.weight", "model.layers.2.attn.v_proj.weight"
    assert synced(engine, held, now, now | {name: before[name]}) == [
        f"'{name}' is held with the values of the version before"
    ]
    assert synced(engine, held, now, now | {name: now[twin]}) == [f"'{name}' is held with the values of '{twin}'"]


def test_a_parameter_that_nothing_was_sent_for_is_said_by_name(now: Weights) -> None:
    engine, held = Engine(packs=False), HeldWeights()
    sent = {name: each for name, each in now.items() if name != "lm_head.weight" and "1.attn.v_proj" not in name}
    assert [text for text in synced(engine, held, sent) if "nothing" in text] == [
        "nothing was sent for 'lm_head.weight'",
        "nothing was sent for 'model.layers.1.attn.v_proj.weight'",
    ]


def test_what_an_architecture_transforms_in_every_layer_is_left_to_log_probs_by_name(now: Weights) -> None:
    engine, held = Engine(packs=False), HeldWeights()
    doubled = {name: each * 2 if "norm" in name else each for name, each in now.items()}
    for _ in range(2):
        assert synced(engine, held, now, doubled) == []
        assert held.unproven == {"model.layers.*.norm.weight"}
        assert len(held.proven) == len(now) - LAYERS


def test_names_follow_the_engines_own_mapping(now: Weights) -> None:
    engine, held = Engine(packs=False), HeldWeights()
    engine.hf_to_vllm_mapper = SimpleNamespace(
        get_rename_mapper=lambda: SimpleNamespace(map_name=lambda name: name.removeprefix("hub."))
    )
    sent = {f"hub.{name}": tensor for name, tensor in now.items()}
    assert synced(engine, held, sent, now) == []
    assert held.proven == list(sent)


def test_a_cast_is_held_as_it_was_made(now: Weights) -> None:
    held, engine = HeldWeights(), Engine(packs=False).bfloat16()
    assert synced(engine, held, now) == []
    off = now | {"lm_head.weight": functional.threshold(now["lm_head.weight"], 0.0, 0.0)}
    assert synced(engine, held, now, off) == ["'lm_head.weight' is held with other values"]


# --- what each of several workers holds


def test_a_worker_has_its_share_of_a_dimension_or_one_that_others_have_too() -> None:
    def cuts(full: int, held: int, of: int) -> list[slice | None]:
        return [Shard(rank, of).cut(full, held) for rank in range(of)]

    assert cuts(8, 4, 2) == [slice(0, 4), slice(4, 8)]
    assert cuts(8, 4, 4) == [slice(0, 4), slice(0, 4), slice(4, 8), slice(4, 8)]
    assert cuts(8, 8, 2) == [slice(0, 8), slice(0, 8)]
    assert cuts(8, 3, 2) == cuts(8, 16, 2) == cuts(9, 3, 2) == cuts(8, 0, 2) == [None, None]


def shard_of(engine: Engine, rank: int, *, packs: bool) -> Engine:
    """What the first or the second of two workers holds: both have the keys and values of the one head."""
    part = Engine(packs=packs)
    for own, whole in zip(part.model.layers, engine.model.layers, strict=True):
        rows, columns = whole.attn.qkv_proj.weight, whole.attn.o_proj.weight
        half = HIDDEN // 2
        own.attn.qkv_proj.take(torch.cat([rows[rank * half : (rank + 1) * half], rows[HIDDEN:]]))
        own.attn.o_proj.take(columns[:, rank * half : (rank + 1) * half])
        for layer, outputs, inputs in ((own.attn.qkv_proj, half + 16, HIDDEN), (own.attn.o_proj, HIDDEN, half)):
            layer.output_size_per_partition, layer.input_size_per_partition = outputs, inputs
        own.attn.qkv_proj.output_partition_sizes = [half, 8, 8]
        own.norm = whole.norm
    start, end = (0, PADDED // 2) if rank == 0 else (PADDED // 2, VOCAB)
    for own, whole in ((part.model.embed_tokens, engine.model.embed_tokens), (part.lm_head, engine.lm_head)):
        own.weight = nn.Parameter(whole.weight[rank * PADDED // 2 : (rank + 1) * PADDED // 2].detach())
        own.shard_indices = SimpleNamespace(org_vocab_start_index=start, org_vocab_end_index=end)
    return part


@pytest.mark.parametrize("packs", [False, True])
def test_each_worker_is_compared_with_its_own_part(now: Weights, before: Weights, packs: bool) -> None:
    tampered = {
        "model.layers.1.attn.o_proj.weight": (slice(None), slice(HIDDEN // 2, HIDDEN)),
        "model.layers.2.attn.k_proj.weight": (slice(0, 8),),
        "lm_head.weight": (slice(VOCAB - 2, VOCAB),),
    }
    for rank, found in enumerate((["k_proj"], ["o_proj", "k_proj", "lm_head"])):
        held = HeldWeights()
        wrong = {name: each.clone() for name, each in now.items()}
        for name, place in tampered.items():
            wrong[name][place] += 1.0
        for sent, loaded in ((before, before), (now, now), (now, wrong)):
            whole = Engine(packs=False)
            whole.load(loaded)
            engine = shard_of(whole, rank, packs=packs)
            held.begin(lay_out_model(engine, checksums(sent.items()), Shard(rank, 2)))
            for name, tensor in sent.items():
                held.watch(name, tensor, digest(tensor))
            problems = held.list_problems()
            assert held.proven == list(sent)
            assert len(problems) == (0 if loaded is sent else len(found))
            assert all(any(name in problem for problem in problems) for name in (found if problems else []))
