"""Presets: the named algorithms of presets.yaml.

Each entry is a Source of its own, `preset grpo`, so that a value which comes from it says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..frozen import frozen
from ..model.algorithm import Kind, Preset
from ..source import Source
from ..text.node import MapNode, Node, node_at, to_data
from ..text.tree import parse_tree

__all__ = ["PresetInfo", "find_preset", "load_preset", "load_presets"]

PREFIX = "preset "
ENTRY = re.compile(r"^([a-z_]+):\n(?:(?:[ #].*)?\n)*", re.MULTILINE)


@frozen
class PresetInfo:
    """A named combination of an algorithm's parts."""

    name: Preset
    kind: Kind
    summary: str
    source: str
    """The paper that it was described in first."""
    needs: tuple[str, ...]
    """`critic`, `reference`, `judge`, `demonstrations`: what it cannot do without."""
    tree: MapNode
    """What it sets, as part of an `algorithm`."""
    version: int
    """Raised with every change of what it sets."""
    sources: Mapping[str, str]
    """Where each setting is from, by its key below `algorithm`."""

    def settings(self) -> Iterator[tuple[str, str]]:
        """Each key that it sets, with its value as it is written."""
        return _leaves(self.tree, ())


def _leaves(node: Node, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(node, MapNode):
        for entry in node.entries:
            yield from _leaves(entry.value, (*path, entry.name))
    else:
        yield ".".join(path), node.span.text


@cache
def _texts() -> Mapping[str, str]:
    text = Path(__file__).with_name("presets.yaml").read_text(encoding="utf-8")
    return {match[1]: match[0] for match in ENTRY.finditer(text)}


@cache
def load_preset(name: Preset) -> PresetInfo:
    """One preset; the others are not read."""
    parsed = parse_tree(Source(f"{PREFIX}{name}", _texts()[name]))
    entry, tree = node_at(parsed.root, (name,)), node_at(parsed.root, (name, "algorithm"))
    assert not parsed.diagnostics, f"presets.yaml: {name}"
    assert entry is not None
    assert isinstance(tree, MapNode)
    data: dict[str, Any] = to_data(entry)
    return PresetInfo(
        name=name,
        kind=Kind(data["kind"]),
        summary=data["summary"],
        source=data["source"],
        needs=tuple(data["needs"]),
        tree=tree,
        version=data["version"],
        sources={key: text for keys, text in data["sources"].items() for key in keys.split()},
    )


def load_presets() -> Mapping[Preset, PresetInfo]:
    """All of them, in the order of the enum."""
    return {name: load_preset(name) for name in Preset}


def find_preset(source: Source) -> str | None:
    """The preset that a source is the text of; None for a person's file, whatever its name."""
    name = source.name.removeprefix(PREFIX)
    is_preset = source.name != name and name in _texts() and load_preset(Preset(name)).tree.span.source is source
    return name if is_preset else None
