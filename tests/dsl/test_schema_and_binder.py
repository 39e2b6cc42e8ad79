"""The published schema and the binder take the same recipes: what an editor lets pass, the compiler reads.

Left out is what a schema cannot say: whether an expression is right, what a stage lacks with all that it inherits, and
text with `${...}`, which an editor sees before it is replaced.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.check.bind import bind
from agym.dsl.compile import find_shorthand
from agym.dsl.compose.compose import compose
from agym.dsl.source import Source
from agym.dsl.text.node import Entry, ListNode, MapNode, Node, node_at
from agym.dsl.text.tree import parse_tree
from agym.files import DiskLibrary
from agym.schemas import recipe_v1
from jsonschema import Draft7Validator

GOOD = Path(__file__).resolve().parents[1] / "recipes_good"
VALIDATOR = Draft7Validator(recipe_v1())
Place = tuple[str | int, ...]

VALUES = [
    None,
    True,
    0,
    1,
    -1,
    2.5,
    10**9,
    "",
    " ",
    "x",
    "a b",
    "http://x",
    [],
    [1],
    ["x"],
    [{}],
    {},
    {"a": 1},
    {"a": {}},
]
"""One of each kind, and what is at the edge of a bound or of a pattern."""


SMALL = """agym: 1
name: small
model: some/model
environments: {craft: textcraft}
schedule: [{stage: only, turns: 3}]
"""


def entry_of(value: Any) -> Entry:
    root = parse_tree(Source("value", json.dumps({"unheard_of": value}))).root
    assert isinstance(root, MapNode)
    return root.entries[0]


NODES = [entry_of(value).value for value in VALUES]
UNKNOWN = entry_of(1)


@cache
def trees() -> list[MapNode]:
    """The recipes that have every key between them, cut into one recipe for each section."""
    library, environ = DiskLibrary(GOOD), {"CORPUS_TOKEN": "x"}
    sources = (
        Source(str(file), file.read_text(encoding="utf-8"), key=str(file)) for file in GOOD.glob("complete-*.yaml")
    )
    runs = [run for each in sources for run in compose(each, library, (), environ, find_shorthand).variants]
    small = parse_tree(Source("small", SMALL)).root
    assert isinstance(small, MapNode)
    return [
        replace(small, entries=(*(each for each in small.entries if each.name != section.name), section))
        for run in runs
        for section in run.tree.entries
    ]


def data(node: Node) -> Any:
    """As an editor sees it: what came from the environment is still a reference."""
    if isinstance(node, MapNode):
        return {entry.name: data(entry.value) for entry in node.entries}
    if isinstance(node, ListNode):
        return [data(item) for item in node.items]
    return node.value if node.redacted is None else node.redacted


def places(node: Node, at: Place = ()) -> Iterator[Place]:
    yield at
    entries = [(entry.name, entry.value) for entry in node.entries] if isinstance(node, MapNode) else []
    for step, inner in entries or (enumerate(node.items) if isinstance(node, ListNode) else []):
        yield from places(inner, (*at, step))


def put(node: Node, place: Place, new: Node | None) -> Node:
    """The tree with another node at a place, or with nothing there."""
    if not place:
        assert new is not None
        return new
    step, rest = place[0], place[1:]
    if isinstance(node, ListNode):
        items = dict(enumerate(node.items))
        old = items.pop(step)
        made = items | ({step: put(old, rest, new)} if rest or new is not None else {})
        return replace(node, items=tuple(made[i] for i in sorted(made)))
    assert isinstance(node, MapNode)
    entries = [each for each in node.entries if each.name != step or rest or new is not None]
    return replace(
        node,
        entries=tuple(
            replace(each, value=put(each.value, rest, new)) if each.name == step else each for each in entries
        ),
    )


def mutations() -> Iterator[tuple[str, MapNode]]:
    """Each key once: gone, with an unknown key below it, or with another value."""
    seen = set[Place]()
    for tree in trees():
        for place in list(places(tree))[1:]:
            pattern = tuple(step if isinstance(step, str) else 0 for step in place)
            if pattern in seen:
                continue
            seen.add(pattern)
            yield f"{place} gone", put(tree, place, None)
            inner = node_at(tree, place)
            if isinstance(inner, MapNode):
                yield f"{place} with more", put(tree, place, replace(inner, entries=(*inner.entries, UNKNOWN)))
            yield from (
                (f"{place}: {value!r}", put(tree, place, node)) for value, node in zip(VALUES, NODES, strict=True)
            )


def test_the_complete_recipes_are_right_by_both() -> None:
    assert trees()
    assert [tree for tree in trees() if not VALIDATOR.is_valid(data(tree)) or bind(tree).rejected] == []


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.heavy)])
def test_both_take_and_both_refuse_the_same_changes_at_every_key(stride: int) -> None:
    taken = {
        name: (VALIDATOR.is_valid(data(tree)), not bind(tree).rejected)
        for name, tree in islice(mutations(), 0, None, stride)
    }
    assert {name: each for name, each in taken.items() if each[0] != each[1]} == {}
    counts = Counter(each[0] for each in taken.values())
    assert min(counts[True], counts[False]) > len(taken) // 5
