"""Random bytes, texts and trees: only nodes and diagnostics come out, all of whose places lie in their sources."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from agym.dsl.codes import CODES
from agym.dsl.compose.compose import compose
from agym.dsl.diagnostics import Diagnostic
from agym.dsl.source import Source
from agym.dsl.text.decode import decode
from agym.dsl.text.node import ListNode, MapNode, Node, ScalarNode, to_data
from agym.dsl.text.tree import Parsed, parse_tree
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ..memory_library import MemoryLibrary

QUICK = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))

FRAGMENTS = st.sampled_from(
    [
        *(
            "a",
            "b: ",
            "c:",
            "- ",
            "-",
            "? ",
            ": ",
            ", ",
            "[",
            "]",
            "{",
            "}",
            "'",
            '"',
            "#",
            " # x",
            "\n",
            "\n  ",
            "\n    ",
        ),
        *(
            "\t",
            "\r\n",
            "&x ",
            "*x",
            "<<: ",
            "!t ",
            "---\n",
            "...\n",
            "%Y\n",
            "|\n",
            ">-\n",
            "|2+\n",
            "\\",
            "\\n",
            "\\x4",
        ),
        *("${vars.a}", "${env:E}", "$${", "${", "010", "1e-6", "null", "@", "`", "“", "😀", "\ufeff", "\0", "é", "("),
        *("vars: ", "extends: ", "matrix: ", "base/x", "r.yaml", ")"),
    ]
)
MESSY = st.lists(FRAGMENTS, max_size=30).map("".join)
TEXT = st.one_of(MESSY, st.text(max_size=60))

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**15), 10**15),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(
        ["on", "no", "1e-6", "010", "x: y", "- a", "# b", "it's", '"', "a\nb\n", " lead", "trail ", "é😀", "~"]
    ),
)
KEYS = st.one_of(st.text(min_size=1, max_size=8), st.sampled_from(["on", "1", "null", "a b", "x:", "-", "?", "é"]))
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=8,
)
STYLES = st.sampled_from([None, '"', "'", "|", ">"])


def nodes(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, MapNode):
        for entry in node.entries:
            yield from nodes(entry.key)
            yield from nodes(entry.value)
    elif isinstance(node, ListNode):
        for item in node.items:
            yield from nodes(item)


def check_diagnostic(diagnostic: Diagnostic) -> None:
    assert diagnostic.code in CODES
    assert len(diagnostic.message) < 400
    for span in (diagnostic.span, *(note.span for note in diagnostic.notes)):
        assert 0 <= span.start <= span.end <= len(span.source.text)


def check_parsed(result: Parsed, text: str) -> None:
    assert result.root is not None or result.diagnostics
    for diagnostic in result.diagnostics:
        check_diagnostic(diagnostic)
    for node in nodes(result.root) if result.root else ():
        assert 0 <= node.span.start <= node.span.end <= len(text)
        if isinstance(node, ScalarNode):
            assert sum(piece.length for piece in node.text.pieces) == len(node.text.value)
            assert node.text.pieces


@given(st.binary(max_size=200))
@QUICK
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    result = decode("r.yaml", data)
    if isinstance(result, Diagnostic):
        check_diagnostic(result)
    else:
        check_parsed(parse_tree(result), result.text)


@pytest.mark.parametrize("fast", [True, False])
@given(text=TEXT)
@QUICK
def test_any_text_is_parsed_or_refused(text: str, fast: bool) -> None:
    check_parsed(parse_tree(Source("r.yaml", text), fast=fast), text)


@given(text=MESSY)
@QUICK
def test_both_parsers_agree_where_both_are_content(text: str) -> None:
    fast, slow = parse_tree(Source("r.yaml", text)), parse_tree(Source("r.yaml", text), fast=False)
    assume(not fast.diagnostics and not slow.diagnostics)
    assert fast.root is not None
    assert slow.root is not None
    assert to_data(fast.root) == to_data(slow.root)
    places = [[(node.span.start, node.span.end) for node in nodes(root)] for root in (fast.root, slow.root)]
    assert places[0] == places[1]


@given(data=TREES)
@QUICK
def test_json_is_read_as_it_is_meant(data: Any) -> None:
    text = json.dumps(data, ensure_ascii=False)
    assume(not re.search("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]", text))
    assume(data is not None)
    root = parse_tree(Source("r.yaml", text)).root
    assert root is not None
    assert to_data(root) == data


@given(value=st.text(max_size=40), style=STYLES, width=st.integers(5, 80), indent=st.integers(2, 6))
@QUICK
def test_every_text_that_yaml_writes_is_read_with_the_place_of_each_letter(
    value: str, style: str | None, width: int, indent: int
) -> None:
    assume(not re.search("[\ud800-\udfff\x85\u2028\u2029]", value))
    text = yaml.dump({"k": {"v": value}}, default_style=style, width=width, indent=indent, allow_unicode=True)
    result = parse_tree(Source("r.yaml", text))
    assume(not result.diagnostics)  # the writer may leave a value plain that is explained as a trap
    assert isinstance(result.root, MapNode)
    node = [node for node in nodes(result.root) if isinstance(node, ScalarNode)][-1]
    value = yaml.load(text, yaml.BaseLoader)["k"]["v"]  # the writer does not always write what it was given
    assert node.text.value == value
    for index, letter in enumerate(value):
        if letter.isalnum() and letter.isascii() and len(node.text.pieces) > 1:
            assert node.text.span(index, index + 1).text[-1] == letter or "\\" in text


@given(
    recipe=MESSY,
    base=MESSY,
    sets=st.lists(st.one_of(MESSY, st.text(max_size=20)), max_size=3),
    environ=st.dictionaries(st.just("E"), st.text(max_size=5)),
)
@QUICK
def test_any_composition_ends_in_trees_and_diagnostics(
    recipe: str, base: str, sets: list[str], environ: dict[str, str]
) -> None:
    library = MemoryLibrary({"r.yaml": recipe, "b.yaml": base}, {"base/x": base})
    text = f"extends: [b, base/x]\nvars: {{a: 1, b: '${{vars.a}}'}}\n{recipe}"
    for source in (Source("r.yaml", recipe), Source("r.yaml", text)):
        result = compose(source, library, sets, environ, {("c",): "x"}.get)
        for diagnostic in result.diagnostics:
            check_diagnostic(diagnostic)
        for variant in result.variants:
            to_data(variant.tree)


@given(data=st.dictionaries(KEYS, TREES, max_size=4))
@QUICK
def test_what_has_no_references_is_composed_unchanged(data: dict[str, Any]) -> None:
    text = json.dumps(data)
    assume("${" not in text and "\\ud" not in text)
    assume(data and not {"vars", "extends", "matrix", "<<"} & set(data))
    result = compose(Source("r.yaml", text.replace("\x7f", "\\u007f")), MemoryLibrary({}))
    assert result.diagnostics == ()
    assert to_data(result.variants[0].tree) == data
