"""YAML to nodes: structure, spans, the place of every character, and the two parsers giving the same."""

from __future__ import annotations

import pytest
from agym.dsl.source import Source
from agym.dsl.text.node import ListNode, MapNode, Measure, Node, Path, ScalarNode, get_entry, node_at, to_data
from agym.dsl.text.tree import MAX_DEPTH, Parsed, parse_tree


def parsed(text: str, fast: bool = True) -> Parsed:
    return parse_tree(Source("r.yaml", text), fast=fast)


def tree(text: str) -> Node:
    result = parsed(text)
    assert result.diagnostics == ()
    assert result.root is not None
    return result.root


def scalar(text: str, *path: str | int) -> ScalarNode:
    node = node_at(tree(text), path)
    assert isinstance(node, ScalarNode)
    return node


def codes(text: str) -> list[str]:
    return [diagnostic.code for diagnostic in parsed(text).diagnostics]


RECIPE = """\
# a comment
agym: 1
model: {path: Qwen/Qwen2.5-7B-Instruct, dtype: bf16}
algorithm:
  lr: 1e-6
  kl: {coef: 1.0e-3}
schedule:
  - {stage: exploit, turns: 10, until: step >= 100}
  - stage: explore
    turns: "${vars.last}"
eval: null
logging: [console, 'jsonl']
empty:
"""


def test_a_recipe_as_data() -> None:
    assert to_data(tree(RECIPE)) == {
        "agym": 1,
        "model": {"path": "Qwen/Qwen2.5-7B-Instruct", "dtype": "bf16"},
        "algorithm": {"lr": 1e-6, "kl": {"coef": 1e-3}},
        "schedule": [
            {"stage": "exploit", "turns": 10, "until": "step >= 100"},
            {"stage": "explore", "turns": "${vars.last}"},
        ],
        "eval": None,
        "logging": ["console", "jsonl"],
        "empty": None,
    }


@pytest.mark.parametrize(
    ("path", "place", "written"),
    [
        (("agym",), "r.yaml:2:7", "1"),
        (("model",), "r.yaml:3:8", "{path: Qwen/Qwen2.5-7B-Instruct, dtype: bf16}"),
        (("algorithm",), "r.yaml:5:3", "lr: 1e-6\n  kl: {coef: 1.0e-3}"),
        (("schedule", 0, "until"), "r.yaml:8:40", "step >= 100"),
        (("schedule", 1), "r.yaml:9:5", 'stage: explore\n    turns: "${vars.last}"'),
        (("schedule", 1, "turns"), "r.yaml:10:12", '"${vars.last}"'),
        (("logging",), "r.yaml:12:10", "[console, 'jsonl']"),
        (("logging", 1), "r.yaml:12:20", "'jsonl'"),
        (("empty",), "r.yaml:13:7", ""),
    ],
)
def test_every_value_knows_its_place(path: Path, place: str, written: str) -> None:
    node = node_at(tree(RECIPE), path)
    assert node is not None
    assert (str(node.span), node.span.text) == (place, written)


def test_every_key_knows_its_place() -> None:
    entry = get_entry(node_at(tree(RECIPE), ("algorithm", "kl")), "coef")
    assert entry is not None
    assert (str(entry.key.span), entry.name) == ("r.yaml:6:8", "coef")


@pytest.mark.parametrize("path", [("nothing",), ("agym", "x"), ("schedule", 9), ("schedule", -1), ("model", 0), (0,)])
def test_a_path_that_leads_nowhere_finds_nothing(path: Path) -> None:
    assert node_at(tree(RECIPE), path) is None


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: '😀é'\nb: x\n", "r.yaml:2:4"),
        ("😀: 1\né: [ü, x]\n", "r.yaml:2:8"),
        ("a: 1\r\nb:\r\n  - 😀\r\n  - x\r\n", "r.yaml:4:5"),
        ("\ufeffa: 1\nb: x\n", "r.yaml:2:4"),
        ("---\nb: x\n...\n", "r.yaml:2:4"),
        ("a: &anchor 1\nb: &other\n  # why\n  x\n", "r.yaml:4:3"),
        ("a:\tx\n", "r.yaml:1:4"),
    ],
)
def test_offsets_count_characters_in_every_kind_of_text(text: str, place: str) -> None:
    root = parse_tree(Source("r.yaml", text), start=1 if text[0] == "\ufeff" else 0).root
    assert isinstance(root, MapNode)
    last = root.entries[-1].value
    node = last.items[-1] if isinstance(last, ListNode) else last
    assert (str(node.span), node.span.text) == (place, "x")


def test_a_part_of_a_source_can_be_read_alone() -> None:
    node = parse_tree(Source("--set #1", "algorithm.kl={coef: 0.1}"), start=13).root
    coef = node_at(node, ("coef",))
    assert coef is not None
    assert (str(coef.span), coef.span.text) == ("--set #1:1:21", "0.1")


# The place of each character of a value


SCALARS = {
    "plain": "a: step >= 100 # why",
    "plain over lines": "a: step\n   >=\n\n\n   100\nb: 1",
    "single": "a: 'it''s  ''x'''",
    "single over lines": "a: 'one  \n  two\n\n  three '",
    "double": 'a: "step >= 100"',
    "escapes": r'a: "x\ty\\z\"\x41\u00e9\U0001F600\/\_\N\e end"',
    "double over lines": 'a: "one\n  two \\\n   three\\\n\n  four\n\n\n five"',
    "literal": "a: |\n  step\n    >= 100\n\n  x\nb: 1",
    "literal stripped": "a: |-\n  x\n  y\n\n\nb: 1",
    "literal kept": "a: |+\n  x\n\n \n\nb: 1",
    "literal with an indicator": "a: |2\n    x\n  y\nb: 1",
    "literal with blank lines first": "a: |\n\n\n  x\nb: 1",
    "literal at the end": "a: |\n  x",
    "literal in crlf": "a: |\r\n  x\r\n  y\r\nb: 1",
    "literal with a tab": "a: |\n  x\n  \ty\n",
    "literal under a list": "a:\n- |\n x\n  y\nb: 1",
    "folded": "a: >\n  step\n  >=\n  100\nb: 1",
    "folded with paragraphs": "a: >-\n  one\n  two\n\n  three\n\n\n  four\n\nb: 1",
    "folded with indented lines": "a: >\n  one\n    two\n    three\n\n  four\n  five\n",
    "folded kept": "a: >+\n\n  one\n  two\n\n\nb: 1",
    "folded in crlf": "a: >\r\n  one\r\n  two\r\n\r\n  three\r\n",
    "block with a comment": "a: | # why\n  x\n  # not a comment\n# a comment\nb: 1",
    "empty quotes": 'a: ""',
    "empty block": "a: |\nb: 1",
    "non-BMP": 'a: "😀\\n😀x"',
}


def first_scalar(text: str, fast: bool) -> ScalarNode:
    root = parsed(text, fast).root
    assert isinstance(root, MapNode)
    value = root.entries[0].value
    node = value.items[0] if isinstance(value, ListNode) else value
    assert isinstance(node, ScalarNode)
    return node


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("text", SCALARS.values(), ids=SCALARS.keys())
def test_each_letter_of_a_value_leads_to_that_letter_in_the_file(text: str, fast: bool) -> None:
    node = first_scalar(text, fast)
    value = node.text.value
    assert sum(piece.length for piece in node.text.pieces) == len(value)
    assert all(piece.exact or piece.length <= 2 for piece in node.text.pieces), "no value was given up on"
    for index, letter in enumerate(value):
        place = node.text.span(index, index + 1)
        assert place.text == letter or place.text[0] in "'\\ \r\n\t"
    visible = [i for i, letter in enumerate(value) if letter.isalnum() and letter.isascii()]
    exact = [i for i in visible if node.text.span(i, i + 1).text == value[i]]
    assert len(exact) >= len(visible) - 1, "all but the escaped A"


def test_a_caret_inside_a_folded_expression_is_exact() -> None:
    node = scalar("until: >\n  mean(success,\n  10) >= wrong\n", "until")
    place = node.text.span(node.text.value.index("wrong"), node.text.value.index("wrong") + 5)
    assert (str(place), place.text) == ("r.yaml:3:10", "wrong")


def test_an_escape_is_one_character_that_comes_from_all_of_it() -> None:
    node = scalar(r'a: "x\u0041y"', "a")
    assert [node.text.span(i, i + 1).text for i in range(3)] == ["x", r"\u0041", "y"]


def test_a_block_ends_at_its_last_letter() -> None:
    assert scalar("a: |\n  x\n\n\nb: 1\n", "a").span.text == "|\n  x"


def test_only_unquoted_values_are_plain() -> None:
    text = "a: on\nb: 'on'\nc: \"1\"\nd: |-\n  1\n"
    assert [scalar(text, key).plain for key in "abcd"] == [True, False, False, False]
    assert [scalar(text, key).value for key in "abcd"] == ["on", "on", "1", "1"]


# Anchors, aliases and merge keys


def test_an_alias_shares_the_node_of_its_anchor() -> None:
    root = tree("a: &x {k: 1}\nb: *x\n")
    assert node_at(root, ("b",)) is node_at(root, ("a",))


def test_a_merge_key_brings_in_what_is_not_there() -> None:
    root = tree("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n")
    use = node_at(root, ("use",))
    assert use is not None
    assert to_data(use) == {"x": 1, "y": 3}
    inherited = get_entry(use, "x")
    assert inherited is not None
    assert str(inherited.key.span) == "r.yaml:1:11"


def test_a_list_of_merges_prefers_the_earlier() -> None:
    root = tree("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b]}\n")
    assert to_data(root) == {"a": {"x": 1}, "b": {"x": 2, "y": 2}, "c": {"x": 1, "y": 2}}


def test_a_quoted_merge_key_is_a_key() -> None:
    assert to_data(tree("'<<': 1\n")) == {"<<": 1}


def test_an_anchor_can_be_defined_again() -> None:
    assert to_data(tree("a: &x 1\nb: &x 2\nc: *x\n")) == {"a": 1, "b": 2, "c": 2}


@pytest.mark.parametrize(
    ("text", "code", "written"),
    [
        ("a: &x1 1\nb: *x2\n", "unknown-alias", "*x2"),
        ("a: &x [*x]\n", "recursive-alias", "*x"),
        ("a: {<<: 3}\n", "bad-merge", "3"),
        ("a: &x 1\nb: {<<: [*x]}\n", "bad-merge", "1"),
        ("a: &x k\n*x : 1\n", "key-type", "*x"),
    ],
)
def test_aliases_and_merges_that_make_no_sense(text: str, code: str, written: str) -> None:
    (diagnostic,) = parsed(text).diagnostics
    assert (diagnostic.code, diagnostic.span.text) == (code, written)


def test_an_unknown_alias_gets_the_near_anchor() -> None:
    (diagnostic,) = parsed("a: &base 1\nb: *bsae\n").diagnostics
    assert diagnostic.help == "did you mean 'base'?"


def test_an_error_does_not_hide_the_rest_of_the_tree() -> None:
    result = parsed("a: 010\nb: {c: *gone}\nd: 1\nd: 2\n")
    assert [d.code for d in result.diagnostics] == ["ambiguous-number", "unknown-alias", "duplicate-key"]
    assert result.root is not None
    assert to_data(result.root) == {"a": "010", "b": {"c": None}, "d": 1}


# Limits


def bomb() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (bomb(), "too-large"),
        ("a: &a {" + ", ".join(f"k{i}: 1" for i in range(6000)) + "}\nb: [*a, *a]", "too-large"),
        ("[" * 100_000, "too-deep"),
        ("- " * 100_000, "too-deep"),
        ("{a: " * 100_000, "too-deep"),
        ("a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40, "too-deep"),
        ("a: " + "x" * 100_000, "too-large"),
        ("a: '" + "x" * 100_000 + "'", "too-large"),
        ("x" * 100_000 + ": 1", "too-large"),
        ("#" * 2_000_000, "too-large"),
        ("a: 1\n" + "\n".join(f"k{i}: 1" for i in range(30_000)), "too-large"),
        ("a: ['" + "\"x' " * 10_000, "unclosed-bracket"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_size_and_depth_end_in_one_diagnostic(text: str, code: str) -> None:
    result = parsed(text)
    assert (result.root, [d.code for d in result.diagnostics]) == (None, [code])


def test_the_deepest_tree_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parsed(text).diagnostics == ()
    assert codes("[" + text + "]") == ["too-deep"]


def test_many_torn_parentheses_take_linear_time() -> None:
    text = "a: [" + "(, " * 9000 + "]"
    root = parsed(text).root
    assert root is not None
    assert len(to_data(root)["a"]) == 9000


def test_size_and_depth_count_shared_nodes_each_time() -> None:
    root = tree("a: &a [1, 2]\nb: [*a, *a]\n")
    assert Measure().of(root) == (1 + 3 + 7, 4)


# Both parsers


CORPUS = [
    RECIPE,
    *SCALARS.values(),
    "a: {b: , c: 1, d: [x, y: z, {}]}\n",
    "a:\n- 1\n-\n- - x\n  - y\nb:\n  c:\n    d: # why\n    e: 1\n",
    "? a\n: b\n? c\n",
    '\'quoted\': "k"\n"é\\u0041": 1\n',
    "a: &x\nb: *x\nc: &y {d: &z [1]}\ne: [*y, *z]\n",
    "--- # start\na: 1\n...\n# end\n",
    "a: x#y\nb: http://x/y\nc: a:b\nd: -1\ne: -x\nf: '#'\n",
    "[a, b, [c]]\n",
    "😀: '😀'\r\nb: |\r\n  😀\r\n",
    "\n\n# only late\n\n  a: 1\n  b: 2\n",
]


def described(node: Node) -> object:
    place = (node.span.start, node.span.end)
    if isinstance(node, MapNode):
        return place, [(described(entry.key), described(entry.value)) for entry in node.entries]
    if isinstance(node, ListNode):
        return place, [described(item) for item in node.items]
    pieces = [(piece.length, piece.origin.start, piece.origin.end, piece.exact) for piece in node.text.pieces]
    return place, type(node.value), node.value, node.plain, pieces


@pytest.mark.parametrize("text", CORPUS)
def test_both_parsers_give_the_same_nodes(text: str) -> None:
    fast, slow = parsed(text, fast=True), parsed(text, fast=False)
    assert fast.diagnostics == slow.diagnostics == ()
    assert fast.root is not None
    assert slow.root is not None
    assert described(fast.root) == described(slow.root)
