from __future__ import annotations

import pytest
from agym.envs.babyai.actions import MAX_LENGTH, GridCommand, MalformedGridCommand, Verb, parse_command
from hypothesis import given
from hypothesis import strategies as st


def thing(verb: Verb, kind: str = "red ball", number: int | None = 1) -> GridCommand:
    return GridCommand(verb=verb, kind=kind, number=number)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("turn left", GridCommand(verb=Verb.LEFT)),
        ("  Turn\tRIGHT \n", GridCommand(verb=Verb.RIGHT)),
        ("move forward", GridCommand(verb=Verb.FORWARD)),
        ("move forward 3", GridCommand(verb=Verb.FORWARD, count=3)),
        ("pick up", GridCommand(verb=Verb.PICK_UP)),
        ("pickup", GridCommand(verb=Verb.PICK_UP)),
        ("drop", GridCommand(verb=Verb.DROP)),
        ("toggle", GridCommand(verb=Verb.TOGGLE)),
        ("done", GridCommand(verb=Verb.DONE)),
        ("check available actions", GridCommand(verb=Verb.CHECK)),
        ("go to red ball 1", thing(Verb.GO_TO)),
        ("go to red ball", thing(Verb.GO_TO, number=None)),
        ("Go to the red ball.", thing(Verb.GO_TO, number=None)),
        ("Pick up a red ball 1.", thing(Verb.PICK_UP)),
        ("pick up red ball 12", thing(Verb.PICK_UP, number=12)),
        ("pickup red ball 1", thing(Verb.PICK_UP)),
        ("drop next to red ball 1", thing(Verb.DROP_NEXT_TO)),
        ("open red locked door 1", thing(Verb.OPEN, "red door")),
        ("close red open door 1", thing(Verb.CLOSE, "red door")),
        ("go through red door 1", thing(Verb.GO_THROUGH, "red door")),
        ("toggle and go through red closed door 1", thing(Verb.GO_THROUGH, "red door")),
    ],
)
def test_a_command_is_understood(text: str, command: GridCommand) -> None:
    assert parse_command(text, macros=True) == command


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", MalformedGridCommand.EMPTY),
        (" \n\t", MalformedGridCommand.EMPTY),
        ("go " * MAX_LENGTH, MalformedGridCommand.LONG),
        ("turn left\nturn left", MalformedGridCommand.LINES),
        ("turn", MalformedGridCommand.UNKNOWN),
        ("turn left 2", MalformedGridCommand.UNKNOWN),
        ("move forward 0", MalformedGridCommand.UNKNOWN),
        ("move forward 21", MalformedGridCommand.UNKNOWN),
        ("move forward -1", MalformedGridCommand.UNKNOWN),
        ("go to", MalformedGridCommand.UNKNOWN),
        ("go to ball", MalformedGridCommand.UNKNOWN),
        ("go to red ball 0", MalformedGridCommand.UNKNOWN),
        ("go to red ball 1..", MalformedGridCommand.UNKNOWN),
        (".", MalformedGridCommand.EMPTY),
        ("go to red ball ١", MalformedGridCommand.UNKNOWN),
        ("toggle and go through", MalformedGridCommand.UNKNOWN),
        ("open", MalformedGridCommand.UNKNOWN),
        ("turn left\x00", MalformedGridCommand.UNKNOWN),
    ],
)
def test_what_is_no_command_is_told_apart(text: str, why: MalformedGridCommand) -> None:
    assert parse_command(text, macros=True) is why


@pytest.mark.parametrize("text", ["go to red ball 1", "move forward 2", "pick up red ball 1", "open red door 1"])
def test_manoeuvres_are_no_commands_where_single_steps_are_played(text: str) -> None:
    assert parse_command(text, macros=False) is MalformedGridCommand.UNKNOWN


@pytest.mark.parametrize("text", ["turn left", "move forward", "pick up", "pickup", "drop", "toggle", "done"])
def test_single_steps_are_commands_in_both(text: str) -> None:
    assert parse_command(text, macros=False) == parse_command(text, macros=True)


@given(st.text(st.characters()), st.booleans())
def test_no_text_breaks_the_parser(text: str, macros: bool) -> None:
    parse_command(text, macros=macros)


@given(st.sampled_from(["go to ", "pick up ", "drop next to "]), st.text("0123456789 abc door red\n", max_size=60))
def test_no_text_like_a_command_breaks_the_parser(start: str, text: str) -> None:
    parse_command(start + text, macros=True)
