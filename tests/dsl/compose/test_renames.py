"""Keys with a new name: read under it, from wherever the old one comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agym.dsl.check.key_suggestions import SchemaKeys
from agym.dsl.diagnostics import Severity
from agym.schemas import recipe_v1

Composing = Callable[..., Any]

OLD, NEW = "on_void_turn", "on_invalid_turn"


@pytest.mark.parametrize(
    ("recipe", "settings", "files", "expected"),
    [
        (f"agent: {{{OLD}: keep}}\n", (), {}, {"agent": {NEW: "keep"}}),
        (f"schedule: [{{agent: {{{OLD}: keep}}}}, 3]\n", (), {}, {"schedule": [{"agent": {NEW: "keep"}}, 3]}),
        (
            f"extends: b\nagent: {{{OLD}: keep}}\n",
            (),
            {"b": f"agent: {{{NEW}: mask_turn}}\n"},
            {"agent": {NEW: "keep"}},
        ),
        (
            f"extends: b\nagent: {{{NEW}: keep}}\n",
            (),
            {"b": f"agent: {{{OLD}: mask_turn}}\n"},
            {"agent": {NEW: "keep"}},
        ),
        (f"agent: {{{NEW}: mask_turn}}\n", (f"agent.{OLD}=keep",), {}, {"agent": {NEW: "keep"}}),
        (f"vars: {{a: {{{OLD}: keep}}}}\nagent: ${{vars.a}}\n", (), {}, {"agent": {NEW: "keep"}}),
        (f"matrix: {{agent.{OLD}: [keep]}}\n", (), {}, {"agent": {NEW: "keep"}}),
    ],
)
def test_an_old_key_is_read_under_its_new_name_with_a_warning(
    composed: Composing, recipe: str, settings: tuple[str, ...], files: dict[str, str], expected: Any
) -> None:
    result = composed(recipe, settings, **files)
    assert result.all_data == [expected]
    assert (result.only.code, result.only.severity, result.only.span.text) == ("renamed-key", Severity.WARNING, OLD)
    assert result.only.message == f"'{OLD}' is now called '{NEW}'"


def test_old_and_new_in_one_file_is_an_error_at_the_old(composed: Composing) -> None:
    result = composed(f"agent: {{{NEW}: keep, {OLD}: mask_turn}}\n")
    assert result.all_data == [{"agent": {NEW: "keep"}}]
    assert (result.only.code, result.only.severity, result.only.span.text) == ("renamed-key", Severity.ERROR, OLD)
    assert result.only.notes[0].span.text == NEW


def test_a_tree_without_old_keys_stays_the_same_object(composed: Composing) -> None:
    assert composed(f"agent: {{{NEW}: keep}}\n{OLD}: 1\n").data == {"agent": {NEW: "keep"}, OLD: 1}


def test_the_schema_takes_the_old_key_as_deprecated_and_never_suggests_it() -> None:
    old = recipe_v1()["definitions"]["Agent"]["properties"][OLD]
    assert old["deprecated"]
    assert ("agent", OLD) not in SchemaKeys(recipe_v1()).known
