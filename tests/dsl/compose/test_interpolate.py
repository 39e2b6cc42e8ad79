"""`vars` and `${...}`: types, places, secrets, and every reference that leads nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agym.dsl.compose.interpolate import escape
from agym.dsl.text.node import ScalarNode

Composing = Callable[..., Any]


def scalar(result: Any, *path: str | int) -> ScalarNode:
    node = result.node(*path)
    assert isinstance(node, ScalarNode)
    return node


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("30", 30),
        ("1e-6", 1e-6),
        ("true", True),
        ("null", None),
        ("text", "text"),
        ("[1, a]", [1, "a"]),
        ("{k: 1}", {"k": 1}),
    ],
)
def test_a_value_that_is_one_reference_takes_the_type_of_its_variable(
    composed: Composing, written: str, value: object
) -> None:
    result = composed(f"vars: {{x: {written}}}\nplain: ${{vars.x}}\nquoted: '${{vars.x}}'\n")
    assert result.data == {"plain": value, "quoted": value}


def test_inside_text_a_reference_is_text_as_it_was_written(composed: Composing) -> None:
    result = composed("vars: {lr: 1e-6, n: 3}\nx: cosine(${vars.lr}, 0, ${vars.n}00)\n")
    assert result.data == {"x": "cosine(1e-6, 0, 300)"}


def test_variables_may_use_variables_and_the_environment(composed: Composing) -> None:
    recipe = "vars: {a: 'x${vars.b}', b: '${vars.c}', c: '${env:C}'}\ny: ${vars.a}\n"
    assert composed(recipe, environ={"C": "z"}).data == {"y": "xz"}


def test_a_part_of_a_variable_is_reached_by_its_path(composed: Composing) -> None:
    recipe = "vars: {m: {small: {l: [1, {d: 2}]}}, link: '${vars.m}'}\n"
    recipe += "x: ${vars.m.small.l[1].d}\ny: ${vars.link.small.l.0}\n"
    assert composed(recipe).data == {"x": 2, "y": 1}


def test_variables_merge_through_extends(composed: Composing) -> None:
    assert composed("extends: b\nvars: {x: 1}\n", b="vars: {x: 0, y: 2}\na: ${vars.x}\nb: ${vars.y}\n").data == {
        "a": 1,
        "b": 2,
    }


def test_a_doubled_dollar_is_a_literal_reference(composed: Composing) -> None:
    assert composed("a: $${vars.x} and $5\n").data == {"a": "${vars.x} and $5"}


@pytest.mark.parametrize("text", ["${x}", "a ${", "$${x}", "$$${x} ${y", "no", "$"])
def test_escaped_text_reads_as_itself(composed: Composing, text: str) -> None:
    assert composed(f"a: '{escape(text)}'\n").data == {"a": text}


def test_an_escape_is_undone_once(composed: Composing) -> None:
    assert composed("vars: {a: {b: '$${x}'}, c: '${vars.a}'}\nd: ${vars.c.b}\n").data == {"d": "${x}"}


# Places


def test_a_value_that_is_one_reference_stands_where_its_variable_was_written(composed: Composing) -> None:
    result = composed("vars: {m: {x: 1}}\na: ${vars.m}\n")
    assert [result.place("a"), result.place("a", "x")] == ["r.yaml:1:11", "r.yaml:1:15"]


def test_errors_inside_text_point_at_the_reference_or_at_the_text(composed: Composing) -> None:
    text = scalar(composed('vars: {n: 100}\nuntil: "step >= ${vars.n} wrong"\n'), "until").text
    assert text.value == "step >= 100 wrong"
    assert [str(text.span(8, 11)), text.span(9, 10).text] == ["r.yaml:2:17", "${vars.n}"]
    assert [str(text.span(12, 17)), text.span(12, 17).text] == ["r.yaml:2:27", "wrong"]


def test_a_default_stands_in_the_recipe_letter_by_letter(composed: Composing) -> None:
    text = scalar(composed("a: ${env:X:-step > q}\n"), "a").text
    assert (text.value, str(text.span(7, 8))) == ("step > q", "r.yaml:1:20")


# The environment


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${env:N}", 12),
        ("'${env:N}'", "12"),
        ("n${env:N}", "n12"),
        ("${env:EMPTY}", ""),
        ("${env:EMPTY:-3}", 3),
        ("'${env:EMPTY:-3}'", "3"),
        ("${env:GONE:-}", ""),
        ("${env:GONE:-null}", None),
        ("${env:GONE:-a:b-c ?}", "a:b-c ?"),
        ("${env:ZERO}", "010"),
        ("${env:N:?why}", 12),
    ],
)
def test_the_environment_is_read_as_yaml_unless_quoted(composed: Composing, written: str, value: object) -> None:
    environ = {"N": "12", "EMPTY": "", "ZERO": "010"}
    assert composed(f"a: {written}\n", environ=environ).data == {"a": value}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("${env:GONE}", "environment variable 'GONE' is not set"),
        ("${env:GONE:?log in first}", "environment variable 'GONE' is not set: log in first"),
        ("${env:EMPTY:?log in first}", "environment variable 'EMPTY' is not set: log in first"),
    ],
)
def test_a_variable_that_is_not_set_is_one_error_at_its_reference(
    composed: Composing, written: str, message: str
) -> None:
    result = composed(f"a: x {written}\nb: 1\n", environ={"EMPTY": ""})
    assert result.errors == [("env-not-set", "r.yaml:1:6", written)]
    assert result.only.message == message
    assert result.all_data == [{"a": f"x {written}", "b": 1}]


def test_a_value_of_the_environment_is_secret_and_shown_as_its_reference(composed: Composing) -> None:
    recipe = (
        "vars: {k: '${env:KEY}'}\na: ${vars.k}\nb: 'x $${y} ${vars.k} ${env:NO:-d}'\nc: ${env:KEY}\nd: ${env:NO:-d}\n"
    )
    result = composed(recipe, environ={"KEY": "hunter2"})
    assert result.data["b"] == "x ${y} hunter2 d"
    assert [scalar(result, key).redacted for key in "abcd"] == [
        "${env:KEY}",
        "x $${y} ${env:KEY} d",
        "${env:KEY}",
        None,
    ]
    assert [scalar(result, key).secret for key in "abcd"] == [True, True, True, False]


def test_no_secret_stands_in_a_diagnostic(composed: Composing) -> None:
    result = composed("vars: {k: ['${env:KEY}']}\na: x ${vars.k}\nb: ${vars.k[0].z}\n", environ={"KEY": "hunter2"})
    assert len(result.errors) == 2
    assert "hunter2" not in repr([(d.message, d.help, d.span.text) for d in result.composed.diagnostics])


def test_bytes_that_are_no_text_are_refused(composed: Composing) -> None:
    assert composed("a: ${env:X}\n", environ={"X": "\udcff"}).only.code == "bad-reference"


# References that lead nowhere


@pytest.mark.parametrize(
    ("written", "code", "underlined", "advice"),
    [
        ("${vars.lsat}", "unknown-var", "lsat", "did you mean 'last'?"),
        ("${vars.zzzzz}", "unknown-var", "zzzzz", "known: last, m"),
        ("${vars.m.xx}", "unknown-var", "xx", "known: abc"),
        ("${vars.last.x}", "unknown-var", "x", "write vars"),
        ("${vars.m[0]}", "unknown-var", "0", None),
        ("${vars.}", "bad-reference", "", "separate names"),
        ("${vars.a b}", "bad-reference", " ", "separate names"),
        ("${last}", "bad-reference", "${last}", "did you mean '${vars.last}'?"),
        ("${var.last}", "bad-reference", "${var.last}", "did you mean '${vars.last}'?"),
        ("${HOME}", "bad-reference", "${HOME}", "did you mean '${env:HOME}'?"),
        ("${env.HOME}", "bad-reference", "${env.HOME}", "did you mean '${env:HOME}'?"),
        ("${oc.env:HOME}", "bad-reference", "${oc.env:HOME}", "did you mean '${env:HOME}'?"),
        ("${algorithm.lr}", "bad-reference", "${algorithm.lr}", "${vars.NAME}"),
        ("${}", "bad-reference", "${}", "${vars.NAME}"),
        ("${vars.last", "bad-reference", "${", "close it with '}'"),
        ("${env:A:-{b}}", "bad-reference", "${env:A:-{b}", "under vars"),
        ("x ${vars.m} y", "bad-reference", "${vars.m}", "the whole value"),
    ],
)
def test_a_reference_that_leads_nowhere(
    composed: Composing, written: str, code: str, underlined: str, advice: str | None
) -> None:
    result = composed(f"vars: {{last: 30, m: {{abc: 1}}}}\na: '{written}'\n")
    diagnostic = result.only
    assert (diagnostic.code, diagnostic.span.text) == (code, underlined)
    assert diagnostic.span.line == 2
    assert (advice or "") in (diagnostic.help or "")


def test_every_mistake_of_a_text_is_reported(composed: Composing) -> None:
    assert [error[2] for error in composed("a: ${vars.x} ${vars.y} ${Z}\n").errors] == ["x", "y", "${Z}"]


def test_a_key_cannot_hold_a_reference(composed: Composing) -> None:
    assert composed("${vars.x}: 1\n").errors == [("bad-reference", "r.yaml:1:1", "${vars.x}")]


def test_a_cycle_of_variables_is_reported_once_with_both_ends(composed: Composing) -> None:
    result = composed("vars:\n  a: ${vars.b}\n  b: x ${vars.c}\n  c: 'y ${vars.a}'\nz: ${vars.b}\n")
    assert result.errors == [("vars-cycle", "r.yaml:4:9", "${vars.a}")]
    assert "vars.a -> vars.b -> vars.c -> vars.a" in result.only.message
    assert str(result.only.notes[0].span) == "r.yaml:2:3"


def test_a_variable_within_itself_is_a_cycle(composed: Composing) -> None:
    assert [e[0] for e in composed("vars: {a: {b: '${vars.a}'}}\nx: 1\n").errors] == ["vars-cycle"]


def test_a_variable_may_use_a_sibling_part(composed: Composing) -> None:
    assert composed("vars: {a: {b: 1, c: '${vars.a.b}'}}\nx: ${vars.a.c}\n").data == {"x": 1}


def test_a_mistake_in_an_unused_variable_is_a_mistake(composed: Composing) -> None:
    assert [e[0] for e in composed("vars: {a: '${vars.gone}'}\nx: 1\n").errors] == ["unknown-var"]


@pytest.mark.parametrize("written", ["3", "[a]", "text"])
def test_vars_must_be_a_map(composed: Composing, written: str) -> None:
    assert composed(f"vars: {written}\n").errors == [("wrong-type", "r.yaml:1:7", written)]


def test_vars_may_be_nothing(composed: Composing) -> None:
    assert composed("vars:\nx: 1\n").data == {"x": 1}


# Secrets in the file


@pytest.mark.parametrize(
    "name", ["token", "hf_token", "API_KEY", "apiKey", "wandb-api-key", "password", "client_secret"]
)
def test_a_literal_secret_is_refused_by_the_name_of_its_key(composed: Composing, name: str) -> None:
    result = composed(f"vars: {{deep: {{{name}: abc}}}}\n")
    assert result.errors == [("literal-secret", f"r.yaml:1:{17 + len(name)}", "abc")]
    assert "${env:" in (result.only.help or "")
    assert "abc" not in result.only.message


@pytest.mark.parametrize(
    "entry",
    [
        "token: '${env:T:-}'",
        "token: null",
        "token: ''",
        "max_tokens: 512",
        "tokens: abc",
        "eos_token: '</s>'",
        "key: a",
        "num_secrets: 3",
        "tokenizer: x",
        "secretary: x",
        "password: '${vars.other}'\n  other: 1",
    ],
)
def test_what_is_no_secret_may_stand_there(composed: Composing, entry: str) -> None:
    assert composed(f"vars:\n  {entry}\n").data == {}


# Size


def test_text_that_doubles_is_stopped(composed: Composing) -> None:
    lines = [f"  v{i}: '${{vars.v{i - 1}}}${{vars.v{i - 1}}}'" for i in range(1, 60)]
    result = composed("vars:\n  v0: xxxxxxxxxx\n" + "\n".join(lines) + "\n")
    assert {code for code, _, _ in result.errors} == {"too-large"}


def test_lists_that_double_are_stopped(composed: Composing) -> None:
    lines = [f"  v{i}: ['${{vars.v{i - 1}}}', '${{vars.v{i - 1}}}']" for i in range(1, 60)]
    result = composed("vars:\n  v0: [1]\n" + "\n".join(lines) + "\n")
    assert {code for code, _, _ in result.errors} <= {"too-large", "too-deep"}
    assert result.errors


@pytest.mark.parametrize("step", [1, -1])
def test_a_long_chain_of_variables_ends(composed: Composing, step: int) -> None:
    lines = [f"  v{i}: '${{vars.v{i + step}}}'" for i in range(1, 500)]
    result = composed("vars:\n  v0: 1\n" + "\n".join(lines) + "\n  v500: 1\nx: ${vars.v499}\n")
    assert {code for code, _, _ in result.errors} <= {"too-deep"}


def test_nesting_through_variables_is_stopped(composed: Composing) -> None:
    lines = [f"  v{i}: {'[' * 40}'${{vars.v{i - 1}}}'{']' * 40}" for i in range(1, 50)]
    result = composed("vars:\n  v0: 1\n" + "\n".join(lines) + "\nx: ${vars.v49}\n")
    assert "too-deep" in {code for code, _, _ in result.errors}


def test_a_recipe_that_grows_too_large_is_no_run(composed: Composing) -> None:
    uses = ", ".join(["'${vars.many}'"] * 100)
    result = composed(f"vars: {{many: [{', '.join(['x'] * 1000)}]}}\na: [{uses}]\n")
    assert result.only.code == "too-large"
    assert result.composed.variants == ()


def test_a_recipe_that_grows_too_deep_is_no_run(composed: Composing) -> None:
    result = composed(f"vars: {{deep: {'[' * 40}{']' * 40}}}\na: {'[' * 40}'${{vars.deep}}'{']' * 40}\n")
    assert result.only.code == "too-deep"
    assert result.composed.variants == ()
