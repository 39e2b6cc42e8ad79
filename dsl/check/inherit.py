"""Inheritance: defaults under a preset, the preset under the recipe, the recipe under each stage.

Every shorthand is written out, `algorithm` has what its preset sets, and each stage has all that it inherits. Every
node keeps the span where it was written; for what a preset set, that is in the preset.

A stage whose `use` differs from the recipe's begins with its own preset. Of the recipe's `algorithm` it then takes what
a person wrote there, except `use` and what has no effect in the stage; what the recipe's own preset set is not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from ..model.algorithm import Algorithm, Preset
from ..model.recipe import Recipe
from ..model.reflect import Record, Series, Type, record, type_below
from ..source import Text
from ..text.edit import drop_entries, merge, open_shorthand, set_entry
from ..text.node import Entry, ListNode, MapNode, Node, Path, ScalarNode, child_nodes, get_entry, is_null, with_children
from .presets import load_preset

__all__ = ["INHERITED", "Keeps", "apply_layers", "expand_shorthands", "rewrite_children", "takes_away"]

INHERITED = ("environments", "agent", "sampling", "reward")
"""Parts of a recipe that a stage may change key by key; `algorithm` is one more, with presets of its own."""

Keeps = Callable[[MapNode], Callable[[Path], bool]]
"""Of a stage's whole `algorithm`: which of its keys have an effect."""


def apply_layers(tree: MapNode, keeps: Keeps) -> MapNode:
    """The tree with every layer laid over the one below."""
    recipe = expand_shorthands(tree, record(Recipe))
    if not isinstance(recipe, MapNode):
        return tree
    own = _algorithm(recipe)
    recipe = _with_algorithm(recipe, _over(_preset(_use(own) or _default_use()), own and _taken(own)))
    schedule = get_entry(recipe, "schedule")
    if schedule is None or not isinstance(schedule.value, ListNode):
        return _without_null(recipe)
    stages = tuple(_stage(item, recipe, own, keeps) for item in schedule.value.items)
    whole = ListNode(items=stages, span=schedule.value.span)
    return _without_null(set_entry(recipe, Entry(key=schedule.key, value=whole)))


def expand_shorthands(node: Node, type_: Type) -> Node:
    """`algorithm: grpo` as `algorithm: {use: grpo}`, `tags: a` as `tags: [a]`, all the way down."""
    if isinstance(type_, Record):
        return _record(node, type_)
    if isinstance(type_, Series) and type_.bare and not isinstance(node, ListNode) and not is_null(node):
        node = ListNode(items=(node,), span=node.span)
    return rewrite_children(node, type_, expand_shorthands)


# a section that recipes share stays shared
@lru_cache(maxsize=1024)
def _record(node: Node, type_: Record) -> Node:
    whole = open_shorthand(node, lambda _: type_.shorthand, ())
    return rewrite_children(whole, type_, expand_shorthands) if whole else node


def rewrite_children(node: Node, type_: Type, rewrite: Callable[[Node, Type], Node]) -> Node:
    """A map or list with each value rewritten by its type; what needs no change is shared."""
    if isinstance(node, ScalarNode):
        return node
    steps: Sequence[str | int] = (
        [entry.name for entry in node.entries] if isinstance(node, MapNode) else range(len(node.items))
    )
    typed = ((child, type_below(type_, step)) for child, step in zip(child_nodes(node), steps, strict=True))
    return with_children(node, (rewrite(child, inner) if inner else child for child, inner in typed))


# --- algorithm -----------------------------------------------------------------------------------------------------


_PRESETS: Mapping[object, Preset] = {each.value: each for each in Preset}


def _default_use() -> Preset:
    default: Preset = record(Algorithm).fields["use"].default
    return default


def _use(algorithm: MapNode | None) -> Preset | None:
    """The preset that is named; None also for one that does not exist, which has been reported."""
    entry = get_entry(algorithm, "use")
    name = entry.value.value if entry and isinstance(entry.value, ScalarNode) else None
    return _PRESETS.get(name)


def _preset(name: Preset) -> MapNode:
    tree = expand_shorthands(load_preset(name).tree, record(Algorithm))
    assert isinstance(tree, MapNode), "a preset is a map"
    return tree


def _over(base: MapNode, over: MapNode | None) -> MapNode:
    made = merge(base, over) if over else base
    assert isinstance(made, MapNode), "two maps merge into a map"
    return made


def _with_algorithm(node: MapNode, algorithm: MapNode, inherited: Entry | None = None) -> MapNode:
    entry = get_entry(node, "algorithm")
    if entry is not None and not isinstance(entry.value, MapNode) and not takes_away(entry.value):
        return node  # no algorithm at all, which the reader reports
    entry = entry or inherited
    span = algorithm.span
    key = entry.key if entry else ScalarNode(value="algorithm", text=Text.made("algorithm", span), span=span)
    return set_entry(node, Entry(key=key, value=algorithm))


# --- stages --------------------------------------------------------------------------------------------------------


def _stage(stage: Node, recipe: MapNode, recipe_algorithm: MapNode | None, keeps: Keeps) -> Node:
    if not isinstance(stage, MapNode):
        return stage
    own = _algorithm(stage)
    inherited = tuple(entry for entry in recipe.entries if entry.name in INHERITED)
    stage = drop_entries(
        stage, *(each.name for each in stage.entries if each.name in INHERITED and is_null(each.value))
    )
    stage = _over(MapNode(entries=inherited, span=recipe.span), stage)
    whole = _stage_algorithm(own, recipe_algorithm, _map(recipe, "algorithm"), keeps)
    return _without_null(_with_algorithm(stage, whole, get_entry(recipe, "algorithm")))


def _stage_algorithm(own: MapNode | None, above: MapNode | None, whole: MapNode | None, keeps: Keeps) -> MapNode:
    """`above` is what the recipe wrote, `whole` the same over its preset."""
    use_above = _use(above) or _default_use()
    use = _use(own) or use_above
    if own is None:
        return whole or _preset(use)
    if use is use_above or above is None:
        return _over(_preset(use), _taken(_over(above, own) if above else own))
    written = drop_entries(above, "use")
    kept = _kept(written, keeps(_over(_preset(use), _taken(_over(written, own)))), ())
    return _over(_preset(use), _taken(_over(kept, own)))


def _kept(node: MapNode, keeps: Callable[[Path], bool], path: Path) -> MapNode:
    """Only the keys that are kept; a map that becomes empty is removed too."""
    entries = []
    for entry in node.entries:
        here = (*path, entry.name)
        if isinstance(entry.value, MapNode):
            inner = _kept(entry.value, keeps, here)
            entries += [Entry(key=entry.key, value=inner)] if inner.entries else []
        elif keeps(here):
            entries.append(entry)
    return MapNode(entries=tuple(entries), span=node.span)


def takes_away(node: Node) -> bool:
    """Whether `null` is written here, rather than nothing."""
    return isinstance(node, ScalarNode) and node.value is None and bool(node.text.value)


def _take_away(node: Node, type_: Type) -> Node:
    """A tree without the keys that `null` takes away, so that their defaults return; null that is a value stays."""
    if isinstance(node, MapNode) and isinstance(type_, Record):
        gone = (each.name for each in node.entries if takes_away(each.value) and _returns(type_, each.name))
        names = tuple(gone)
        node = drop_entries(node, *names) if names else node
    return rewrite_children(node, type_, _take_away)


def _returns(type_: Record, name: str) -> bool:
    field = type_.fields.get(name)
    return field is not None and not field.nullable and not field.required


def _taken(algorithm: MapNode) -> MapNode:
    made = _take_away(algorithm, record(Algorithm))
    return made if isinstance(made, MapNode) else algorithm


def _algorithm(node: MapNode) -> MapNode | None:
    own = _map(node, "algorithm")
    use = get_entry(own, "use")
    return drop_entries(own, "use") if own and use and takes_away(use.value) else own


def _without_null(node: MapNode) -> MapNode:
    """Without the environments that null leaves out."""
    worlds = get_entry(node, "environments")
    if worlds is None or not isinstance(worlds.value, MapNode):
        return node
    left_out = [entry.name for entry in worlds.value.entries if is_null(entry.value)]
    return set_entry(node, Entry(key=worlds.key, value=drop_entries(worlds.value, *left_out))) if left_out else node


def _map(node: MapNode, name: str) -> MapNode | None:
    entry = get_entry(node, name)
    return entry.value if entry and isinstance(entry.value, MapNode) else None
