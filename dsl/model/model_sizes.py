"""Sizes of models: from `published_models.json`, `init`, a recipe's `shape`, or the data of a `config.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..frozen import frozen
from .recipe import Family, Init, Model, ModelShape

__all__ = ["Published", "find_published", "find_shape", "is_folder", "make_shape", "read_shape"]


@frozen
class Published:
    """A model whose configuration is public."""

    shape: ModelShape
    max_positions: int
    """Tokens of its longest context, as its configuration says; without rope scaling."""


def is_folder(path: str) -> bool:
    """Whether the path of a model is a folder rather than a hub id."""
    return path.startswith((".", "/", "~"))


@cache
def _published_models() -> Mapping[str, Mapping[str, Any]]:
    """The entries of `published_models.json` by hub id in lower case."""
    text = Path(__file__).with_name("published_models.json").read_text(encoding="utf-8")
    return {name.lower(): entry for name, entry in json.loads(text).items()}


def find_published(path: str | None) -> Published | None:
    """Find a published model by its hub id, in any case, as the hub does."""
    entry = _published_models().get(path.lower()) if path is not None else None
    return Published(shape=ModelShape(**entry["shape"]), max_positions=entry["max_positions"]) if entry else None


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


_FAMILIES = ("qwen2", "qwen3", "llama", "mistral")


def read_shape(data: object) -> ModelShape | None:
    """Sizes from a `config.json`; None for an unknown family or missing sizes."""
    if not isinstance(data, Mapping):
        return None
    family = str(data.get("model_type"))
    sizes = {name: _size(data.get(key)) for name, key in _CONFIG_KEYS.items()}
    if family not in _FAMILIES or None in sizes.values():
        return None
    # a configuration that says nothing of them means one key-value head per head and untied embeddings
    kv_heads = _size(data.get("num_key_value_heads", sizes["heads"]))
    if kv_heads is None:
        return None
    return ModelShape(
        **{name: size for name, size in sizes.items() if size is not None},
        kv_heads=kv_heads,
        head_dim=_size(data.get("head_dim")),
        tie_embeddings=data.get("tie_word_embeddings") is True,
        attention_bias=family == "qwen2" or data.get("attention_bias") is True,
        qk_norm=family == "qwen3",
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
