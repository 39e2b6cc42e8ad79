"""YAML's own traps: each is explained at the character that causes it, by both parsers alike."""

from __future__ import annotations

import pytest
from agym.dsl.codes import CODES
from agym.dsl.diagnostics import Diagnostic
from agym.dsl.source import Source
from agym.dsl.text.node import to_data
from agym.dsl.text.tree import parse_tree


def diagnostics(text: str, fast: bool = True) -> tuple[Diagnostic, ...]:
    return parse_tree(Source("r.yaml", text), fast=fast).diagnostics


# text, code, line:column, what is underlined, a part of the help
TRAPS = [
    ("a:\n\tb: 1\n", "tab-indentation", "2:1", "\t", "spaces instead of the tab"),
    ("a:\n  b: 1\n\tc: 2\n", "tab-indentation", "3:1", "\t", "spaces"),
    ("a: 1\n  \t b: 2\n", "tab-indentation", "2:3", "\t ", "spaces"),
    ("-\ta\n", "tab-indentation", "1:2", "\t", "spaces"),
    ("a: >\n\tb\n", "tab-indentation", "2:1", "\t", "spaces"),
    (
        "s:\n  - {until: mean(success, 10) >= 0.8, turns: 3}\n",
        "comma-in-flow",
        "2:13",
        "mean(success, 10) >= 0.8",
        None,
    ),
    ("s: {until: step >= 100, x}\n", "missing-value", "1:25", "x", "write 'x: ...'"),
    ("s: {until: step >= 100, x > 1}\n", "comma-in-flow", "1:12", "step >= 100, x > 1", 'until: "step >= 100, x > 1"'),
    ("seed\u00a0: 1\n", "control-character", "1:5", "\u00a0", "a normal space"),
    ("agent:\u00a0react\nx: 1\n", "control-character", "1:7", "\u00a0", "a normal space"),
    ("tags: [*]\n", "reserved-character", "1:8", "*", 'quote it: "*"'),
    ("s: {r: clip(a, 0, min(1, 2))}\n", "comma-in-flow", "1:8", "clip(a, 0, min(1, 2))", 'r: "clip(a, 0, min(1, 2))"'),
    ("s: [mean(success, 10), 2]\n", "comma-in-flow", "1:5", "mean(success, 10)", '"mean(success, 10)"'),
    ("s: {turns: ${vars.last}}\n", "unquoted-interpolation", "1:12", "${vars.last}", '"${vars.last}"'),
    ("s: [a, ${env:X}]\n", "unquoted-interpolation", "1:8", "${env:X}", '"${env:X}"'),
    ("s: {a: x/${vars.y}/z, b: 1}\n", "unquoted-interpolation", "1:10", "${vars.y}", '"x/${vars.y}/z"'),
    ("a: b: c\n", "colon-in-value", "1:5", ":", '"b: c"'),
    ("- a: x y: z # why\n", "colon-in-value", "1:9", ":", '"x y: z"'),
    ("a: ${env:X:?must be: set}\n", "colon-in-value", "1:20", ":", '"${env:X:?must be: set}"'),
    ("a: [x]: y\n", "colon-in-value", "1:7", ":", '"[x]: y"'),
    ("a: 1\n  b: 2\n", "bad-indentation", "2:3", "b", "like the keys around it"),
    ("a: 1\n b: 2\nc: 3\n", "bad-indentation", "2:2", "b", "indent it like"),
    ("  a: 1\nb: 2\n", "bad-indentation", "2:1", "b: 2", "indent it like"),
    ("a:\n  b: 1\n c: 2\n", "bad-indentation", "3:2", "c: 2", "indent it like"),
    ("a:\n  - 1\n b: 2\n", "bad-indentation", "3:2", "b: 2", "indent it like"),
    ("- a\nb: 1\n", "bad-indentation", "2:1", "b: 1", "start it with '- '"),
    ("b: 1\n- a\n", "bad-indentation", "2:1", "- a", "under its key"),
    ("a:\n  - b: 1\n   c: 2\n", "bad-indentation", "3:4", "c: 2", "indent it like"),
    ("a: |\n   b\n  c\n", "bad-indentation", "3:3", "c", "indent it like"),
    ("a: - b\n", "bad-indentation", "1:4", "-", "on its own line"),
    ("a: b\n  - c\n", "bad-indentation", "2:3", "- c", "indent it like"),
    ("a:\n  - b\n    - c\n", "bad-indentation", "3:5", "- c", "indent it like"),
    ('a: "foo\nb: 1\n', "unclosed-quote", "1:4", '"foo', 'close it with "'),
    ('a: "foo\nb: "bar"\n', "unclosed-quote", "1:4", '"foo', 'close it with "'),
    ("a: 'foo\nb: 'bar'\nc: 1\n", "unclosed-quote", "1:4", "'foo", "close it with '"),
    ('a: {b: "foo, c: 1}\nd: "x"\n', "unclosed-quote", "1:8", '"foo, c: 1}', 'close it with "'),
    ("a: 'x\n--- y'\n", "unclosed-quote", "1:4", "'x", None),
    ("a: 'it's'\n", "stray-text", "1:8", "s", "''"),
    ('a: "x"y\n', "stray-text", "1:7", "y", '\\"'),
    ("a: &x *y\n", "stray-text", "1:7", "*y", "quote"),
    ("a: [1, 2\nb: 3\n", "unclosed-bracket", "1:4", "[", "']'"),
    ("a: {x: 1\nb: {y: 2}\n", "unclosed-bracket", "1:4", "{", "'}'"),
    ("a: [1, {b: []}, [\n", "unclosed-bracket", "1:17", "[", "']'"),
    ("a: {x: 1, y: 2\n", "unclosed-bracket", "1:4", "{", "'}'"),
    ("a: [1]]\n", "unopened-bracket", "1:7", "]", "remove it"),
    ("a: {x: 1}}\n", "unopened-bracket", "1:10", "}", "remove it"),
    ("a: ]\n", "unopened-bracket", "1:4", "]", "remove it"),
    ("a: {x: 1 y: 2}\n", "missing-comma", "1:10", "y", "', '"),
    ('a: ["x" "y"]\n', "missing-comma", "1:9", '"', "', '"),
    ("a: [,]\n", "missing-value", "1:5", ",", None),
    ("a: {b, c: 1}\n", "missing-value", "1:5", "b", "write 'b: ...'"),
    ("a: {b: [x], c}\n", "missing-value", "1:13", "c", "write 'c: ...'"),
    (": 1\n", "missing-key", "1:1", ":", "key: value"),
    ("turns:10\n", "missing-space", "1:1", "turns:10", "'turns: 10'"),
    ("a: 1\nturns:10\nb: 2\n", "missing-space", "2:1", "turns:10", "'turns: 10'"),
    ("x:\n  turns:10\ny: 1\n", "missing-space", "2:3", "turns:10", "'turns: 10'"),
    ("{turns:10}\n", "missing-space", "1:2", "turns:10", "'turns: 10'"),
    ("x:\n  -a\n  -b\n", "missing-space", "2:3", "-a", "'- a'"),
    ("x:\n  - a\n  -b\ny: 1\n", "missing-space", "3:3", "-b", "'- b'"),
    ("a: 1\nkey # why\nb: 2\n", "missing-colon", "2:1", "key", "key: value"),
    ("some words\nother: 1\n", "missing-colon", "1:1", "some words", "key: value"),
    ("a: 1\nb: 2\na: 3\n", "duplicate-key", "3:1", "a", "remove one"),
    ("a: {b: 1, 'b': 2}\n", "duplicate-key", "1:11", "'b'", "remove one"),
    ("a: 1\n---\nb: 1\n", "several-documents", "2:1", "---", "file of its own"),
    ("---\n---\n", "several-documents", "2:1", "---", None),
    ("a: 1\n...\nb: 2\n", "several-documents", "3:1", "b: 2", None),
    ("a: !!python/object:os.system x\n", "yaml-tag", "1:4", "!!python/object:os.system", "value alone"),
    ("a: &x !y [1]\n", "yaml-tag", "1:7", "!y", None),
    ("a: !<tag:x> b\n", "yaml-tag", "1:4", "!<tag:x>", None),
    ("a: !e!x b\n", "yaml-tag", "1:4", "!e!x", None),
    ("1: a\nb: 2\n", "key-type", "1:1", "1", "quote the key"),
    ("true: a\n", "key-type", "1:1", "true", "quote the key"),
    ("~: a\n", "key-type", "1:1", "~", "quote the key"),
    ("{a: 1}: 2\n", "key-type", "1:1", "{a: 1}", None),
    ("? [a]\n: 2\n", "key-type", "1:3", "[a]", None),
    ("a: {{ x }}\n", "key-type", "1:4", "{{ x }}", '"${vars.NAME}"'),
    ("a: b\0c\n", "control-character", "1:5", "\0", "\\u0000"),
    ("a: b\u2028c\n", "control-character", "1:5", "\u2028", None),
    ("a: 1\rb: 2\n", "control-character", "1:5", "\r", None),
    ("a: \ufeffb\n", "control-character", "1:4", "\ufeff", None),
    ("a: \udc80\n", "control-character", "1:4", "\udc80", None),
    ("a: \xa0b\n", "control-character", "1:4", "\xa0", "normal space"),
    ("a: “foo”\n", "smart-quotes", "1:4", "“", 'write " instead'),
    ("a: {b: ‘foo’}\n", "smart-quotes", "1:8", "‘", "write ' instead"),
    ("# c\n\n%YAML 1.2\n---\na: 1\n", "yaml-directive", "3:1", "%YAML 1.2", "remove the line"),
    ("a: 1\n%TAG ! x\n", "yaml-directive", "2:1", "%TAG ! x", "remove the line"),
    ("a: @foo # why\n", "reserved-character", "1:4", "@foo", '"@foo"'),
    ("a: {b: `foo`, c: 1}\n", "reserved-character", "1:8", "`foo`", '"`foo`"'),
    ("a: %foo\n", "reserved-character", "1:4", "%foo", '"%foo"'),
    ("a: *.yaml\n", "reserved-character", "1:4", "*.yaml", '"*.yaml"'),
    ("a: & b\n", "reserved-character", "1:4", "& b", '"& b"'),
    ('a: "C:\\data"\n', "bad-escape", "1:7", "\\d", "single quotes"),
    ('a: "x\\u12"\n', "bad-escape", "1:6", "\\u12", None),
    ('a: "\\U00110000"\n', "bad-escape", "1:5", "\\U00110000", None),
    ("a: |x\n  b\n", "yaml-syntax", "1:4", "|x", "next line"),
    ("a: 010\n", "ambiguous-number", "1:4", "010", "write 10"),
    ("a: [.inf]\n", "bad-number", "1:5", ".inf", "finite"),
    ("", "empty-file", "1:1", "", "agym: 1"),
    ("# only a comment\n", "empty-file", "1:1", "", None),
    ("---\n...\n", "empty-file", "1:1", "", None),
]


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(("text", "code", "place", "underlined", "advice"), TRAPS)
def test_a_trap_is_explained_where_it_is(
    text: str, code: str, place: str, underlined: str, advice: str | None, fast: bool
) -> None:
    (diagnostic,) = diagnostics(text, fast)
    assert (diagnostic.code, str(diagnostic.span), diagnostic.span.text) == (code, f"r.yaml:{place}", underlined)
    assert (advice or "") in (diagnostic.help or "")


@pytest.mark.parametrize(("text", "code"), [(trap[0], trap[1]) for trap in TRAPS])
def test_messages_are_one_lower_case_sentence_and_codes_are_listed(text: str, code: str) -> None:
    (diagnostic,) = diagnostics(text)
    assert code in CODES
    assert not diagnostic.message.endswith(".")
    assert diagnostic.message[0] == diagnostic.message[0].lower()
    assert "\n" not in diagnostic.message
    assert len(diagnostic.message) < 140


def test_a_key_that_is_too_long_for_yaml_says_so() -> None:
    (diagnostic,) = diagnostics("k" * 1100 + ": 1\n")
    assert (diagnostic.code, diagnostic.message) == ("too-large", "this key has 1100 characters; the limit is 1024")


def test_an_escaped_surrogate_is_no_character() -> None:
    for fast in (True, False):
        assert [d.code for d in diagnostics('a: "\\ud800"\n', fast)] == ["bad-escape"]


def test_a_duplicate_key_shows_the_first_place() -> None:
    (diagnostic,) = diagnostics("lr: 1\nseed: 2\nlr: 3\n")
    (note,) = diagnostic.notes
    assert (note.message, str(note.span)) == ("first written here", "r.yaml:1:1")


def test_a_swallowed_key_shows_what_swallowed_it() -> None:
    (diagnostic,) = diagnostics("a: some words\n  b: 2\n")
    assert diagnostic.notes[0].span.text == "some words"


def test_an_unclosed_bracket_shows_how_far_it_was_read() -> None:
    (diagnostic,) = diagnostics("a: [1, 2\nb: 3\n")
    assert str(diagnostic.notes[0].span) == "r.yaml:2:2"


def test_a_torn_value_is_repaired_so_that_the_rest_can_be_checked() -> None:
    result = parse_tree(Source("r.yaml", "s: {until: mean(a, 10) > 1, turns: 3}\nt: [clip(a, 1), 2]\n"))
    assert [d.code for d in result.diagnostics] == ["comma-in-flow"] * 2
    assert result.root is not None
    assert to_data(result.root) == {"s": {"until": "mean(a, 10) > 1", "turns": 3}, "t": ["clip(a, 1)", 2]}


def test_two_torn_values_in_one_map_are_two_mistakes() -> None:
    found = diagnostics("{a: f(x, 1), b: f(x, 1)}\n")
    assert [(d.code, d.span.text) for d in found] == [("comma-in-flow", "f(x, 1)")] * 2


@pytest.mark.parametrize(
    "text",
    [
        "a: it's fine\n",
        "a: 'x: y'\n",
        "a: http://host:80/x\n",
        "a:\n  http://host/x\n",
        "a: -x\n",
        "a: [f(x), g(y)]\n",
        "a: [f(x, 'y)', (z]\n",
        'a: {b: "f(x, 1)", c: 2}\n',
        "a: one\n  two\n  three\n",
        "a: 'one\n  two'\n",
        "a: {b: 1,\n  c: 2}\n",
        "a: {b: }\n",
        "a: {\n  b: 1,  # why\n  c: [1, 2,],\n}\n",
        'a: "é “quoted” inside"\n',
        "a: é “quoted” inside\n",
        "a: 50%\n",
        "a: user@host\n",
        "on: yes\n",
        "a: x)\n",
    ],
)
def test_what_only_looks_like_a_trap_is_read(text: str) -> None:
    assert diagnostics(text) == diagnostics(text, fast=False) == ()
