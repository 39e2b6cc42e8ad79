"""Sizes of models: from the table of published ones, `init`, a recipe's `shape`, or a `config.json`. Reads no files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..frozen import frozen
from .recipe import Family, Init, Model, ModelShape

__all__ = ["KNOWN", "Published", "find_published", "find_shape", "is_folder", "make_shape", "read_shape"]


@frozen
class Published:
    """A model whose configuration is public."""

    shape: ModelShape
    max_positions: int
    """Tokens of its longest context, as its configuration says; without rope scaling."""


def _qwen2(
    layers: int, hidden: int, heads: int, kv_heads: int, intermediate: int, *, vocab: int = 152_064, tied: bool = False
) -> ModelShape:
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        intermediate=intermediate,
        vocab=vocab,
        tie_embeddings=tied,
        attention_bias=True,
    )


def _qwen3(layers: int, hidden: int, heads: int, intermediate: int, *, tied: bool) -> ModelShape:
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        intermediate=intermediate,
        vocab=151_936,
        head_dim=128,
        tie_embeddings=tied,
        qk_norm=True,
    )


def _llama(
    layers: int, hidden: int, heads: int, kv_heads: int, intermediate: int, *, vocab: int = 128_256, tied: bool = False
) -> ModelShape:
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        intermediate=intermediate,
        vocab=vocab,
        tie_embeddings=tied,
    )


_QWEN25 = {
    "0.5B": _qwen2(24, 896, 14, 2, 4_864, vocab=151_936, tied=True),
    "1.5B": _qwen2(28, 1_536, 12, 2, 8_960, vocab=151_936, tied=True),
    "3B": _qwen2(36, 2_048, 16, 2, 11_008, vocab=151_936, tied=True),
    "7B": _qwen2(28, 3_584, 28, 4, 18_944),
    "14B": _qwen2(48, 5_120, 40, 8, 13_824),
    "32B": _qwen2(64, 5_120, 40, 8, 27_648),
    "72B": _qwen2(80, 8_192, 64, 8, 29_568),
}
_QWEN3 = {
    "0.6B": _qwen3(28, 1_024, 16, 3_072, tied=True),
    "1.7B": _qwen3(28, 2_048, 16, 6_144, tied=True),
    "4B": _qwen3(36, 2_560, 32, 9_728, tied=True),
    "8B": _qwen3(36, 4_096, 32, 12_288, tied=False),
    "14B": _qwen3(40, 5_120, 40, 17_408, tied=False),
    "32B": _qwen3(64, 5_120, 64, 25_600, tied=False),
}
_LLAMA = {
    "Llama-3.2-1B": _llama(16, 2_048, 32, 8, 8_192, tied=True),
    "Llama-3.2-3B": _llama(28, 3_072, 24, 8, 8_192, tied=True),
    "Llama-3.1-8B": _llama(32, 4_096, 32, 8, 14_336),
    "Llama-3.1-70B": _llama(80, 8_192, 64, 8, 28_672),
    "Llama-3.3-70B": _llama(80, 8_192, 64, 8, 28_672),
}
_SMOLLM2 = {
    "135M": _llama(30, 576, 9, 3, 1_536, vocab=49_152, tied=True),
    "360M": _llama(32, 960, 15, 5, 2_560, vocab=49_152, tied=True),
    "1.7B": _llama(24, 2_048, 32, 32, 8_192, vocab=49_152, tied=True),
}
_SMALL_QWEN25 = ("0.5B", "1.5B", "3B")


def _table() -> dict[str, Published]:
    table: dict[str, Published] = {}
    for size, shape in _QWEN25.items():
        base = 32_768 if size in _SMALL_QWEN25 else 131_072
        table[f"Qwen/Qwen2.5-{size}"] = Published(shape=shape, max_positions=base)
        table[f"Qwen/Qwen2.5-{size}-Instruct"] = Published(shape=shape, max_positions=32_768)
    for size, shape in _QWEN3.items():
        table[f"Qwen/Qwen3-{size}"] = Published(shape=shape, max_positions=40_960)
        table[f"Qwen/Qwen3-{size}-Base"] = Published(shape=shape, max_positions=32_768)
    for suffix in ("Instruct", "Thinking"):
        table[f"Qwen/Qwen3-4B-{suffix}-2507"] = Published(shape=_QWEN3["4B"], max_positions=262_144)
    for name, shape in _LLAMA.items():
        for suffix in ("", "-Instruct"):
            table[f"meta-llama/{name}{suffix}"] = Published(shape=shape, max_positions=131_072)
    for size, shape in _SMOLLM2.items():
        for suffix in ("", "-Instruct"):
            table[f"HuggingFaceTB/SmolLM2-{size}{suffix}"] = Published(shape=shape, max_positions=8_192)
    # these were never published without, or under, the regular name
    for absent in ("Qwen/Qwen3-32B-Base", "meta-llama/Llama-3.3-70B"):
        del table[absent]
    return table


KNOWN: Mapping[str, Published] = _table()
"""Published models by hub id."""

_BY_LOWER_CASE = {name.lower(): known for name, known in KNOWN.items()}


def is_folder(path: str) -> bool:
    """Whether the path of a model is a folder rather than a hub id."""
    return path.startswith((".", "/", "~"))


def find_published(path: str | None) -> Published | None:
    """Find a published model by its hub id, in any case, as the hub does."""
    return _BY_LOWER_CASE.get(path.lower()) if path is not None else None


def find_shape(model: Model) -> ModelShape | None:
    """Sizes of a recipe's model, as far as the recipe and the table give them."""
    if model.init is not None:
        return make_shape(model.init, model.tokenizer)
    if model.shape is not None:
        return model.shape
    known = find_published(model.path)
    return known.shape if known else None


def make_shape(init: Init, tokenizer: str | None = None) -> ModelShape | None:
    """Sizes of a model made from scratch; None if its tokenizer is unknown."""
    vocab = _vocab(init, tokenizer)
    if vocab is None:
        return None
    return ModelShape(
        layers=init.layers,
        hidden=init.hidden,
        heads=init.heads,
        kv_heads=init.kv_heads or init.heads,
        intermediate=init.intermediate or 3 * init.hidden,
        vocab=vocab,
        tie_embeddings=init.tie_embeddings,
        attention_bias=init.family is Family.QWEN2,
        qk_norm=init.family is Family.QWEN3,
    )


def _vocab(init: Init, tokenizer: str | None) -> int | None:
    if tokenizer is None:
        return init.tokenizer.vocab
    known = find_published(tokenizer)
    return known.shape.vocab if known else None


_FAMILIES: Mapping[str, Mapping[str, bool]] = {
    "qwen2": {"attention_bias": True, "qk_norm": False},
    "qwen3": {"attention_bias": False, "qk_norm": True},
    "llama": {"attention_bias": False, "qk_norm": False},
    "mistral": {"attention_bias": False, "qk_norm": False},
}


def read_shape(data: object) -> ModelShape | None:
    """Sizes from a `config.json`; None for an unknown family or missing sizes."""
    if not isinstance(data, Mapping):
        return None
    family = _FAMILIES.get(str(data.get("model_type")))
    sizes = {name: _size(data.get(key)) for name, key in _CONFIG_KEYS.items()}
    if family is None or None in sizes.values():
        return None
    # a configuration that says nothing of them means one key-value head per head and untied embeddings
    kv_heads = _size(data.get("num_key_value_heads", sizes["heads"]))
    if kv_heads is None:
        return None
    bias = data.get("attention_bias", family["attention_bias"])
    return ModelShape(
        **_present(sizes),
        kv_heads=kv_heads,
        head_dim=_size(data.get("head_dim")),
        tie_embeddings=data.get("tie_word_embeddings") is True,
        attention_bias=family["attention_bias"] or bias is True,
        qk_norm=family["qk_norm"],
    )


_CONFIG_KEYS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "vocab": "vocab_size",
}


def _size(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def _present(sizes: Mapping[str, int | None]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if size is not None}
