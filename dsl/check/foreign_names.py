"""Names from other frameworks: what they are called here, or what agym does instead.

The table is `key_aliases.yaml`, hundreds of names that trainers give their settings. It is read on the first mistake
that could need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from ..suggest import fold_name

__all__ = ["explain_kind", "explain_name", "find_foreign", "load_aliases", "split_words", "vary_name"]

PREFIXES = (
    "use is enable disable vllm sglang actor policy ppo dpo grpo rloo sft rl log_prob rollout trainer training train "
    "generation gen sampling sampler infer inference hf my default custom global"
)
SUFFIXES = (
    "enabled enable per_gpu per_device per_rank per_dp config configs cfg args kwargs params settings options name "
    "value values list size number count"
)
MOST_VARIANTS = 24
NO_NAME = frozenset(f"{SUFFIXES} {PREFIXES}".split())
"""What is left of a name that consists of nothing else."""


@cache
def load_aliases() -> Mapping[str, Any]:
    """`keys` by folded names, `explained` by names and patterns, `values`, `advice` on values, `words`."""
    import yaml

    text = Path(__file__).with_name("key_aliases.yaml").read_text(encoding="utf-8")
    found = yaml.load(text, getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    return {
        "keys": {fold_name(name): meant.split() for meant, names in found["keys"].items() for name in names},
        "explained": {name: text for text, names in found["explained"].items() for name in names},
        "values": found["values"],
        "advice": {name: text for text, names in found["advice"].items() for name in names},
        "words": {name: word for word, names in found["words"].items() for name in names},
    }


def find_foreign(name: str) -> Sequence[str]:
    """The keys that other frameworks mean by exactly this name."""
    found: Sequence[str] = load_aliases()["keys"].get(fold_name(name), ())
    return found


def explain_name(name: str, section: str) -> str | None:
    """What to do instead of writing a name that has no counterpart, in a section or in any."""
    explained: Mapping[str, str] = load_aliases()["explained"]
    folded = underscored(name)
    return explained.get(f"{section}.{folded}") or explained.get(folded) or _folded().get(fold_name(name))


@cache
def _folded() -> Mapping[str, str]:
    explained: Mapping[str, str] = load_aliases()["explained"]
    return {fold_name(name): text for name, text in explained.items() if "." not in name and "*" not in name}


def explain_kind(name: str) -> str | None:
    """The same for names that are recognised by a part; the longest part decides."""
    explained: Mapping[str, str] = load_aliases()["explained"]
    patterns = [each for each in explained if "*" in each and fnmatchcase(underscored(name), each)]
    return explained[max(patterns, key=len)] if patterns else None


def underscored(name: str) -> str:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[\W_]+", "_", snake).lower()


def split_words(name: str) -> list[str]:
    """The words of a name in any style."""
    return [word for word in underscored(name).split("_") if word]


def vary_name(name: str) -> Iterator[str]:
    """The name without what frameworks put before and after one, the least changed first."""
    seen = {underscored(name)}
    queue = [underscored(name)]
    while queue:
        shorter = [each for each in _stripped(queue.pop(0)) if each not in seen and each not in NO_NAME]
        seen.update(shorter)
        queue += shorter
        yield from islice(shorter, max(0, MOST_VARIANTS - len(seen) + len(shorter)))


def _stripped(name: str) -> Iterator[str]:
    yield from (name.removeprefix(f"{each}_") for each in PREFIXES.split() if name.startswith(f"{each}_"))
    yield from (name.removesuffix(f"_{each}") for each in SUFFIXES.split() if name.endswith(f"_{each}"))
