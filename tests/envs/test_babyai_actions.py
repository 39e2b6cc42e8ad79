from __future__ import annotations

import pytest
from agym.envs.babyai.actions import MAX_LENGTH, Command, Malformed, Verb, parse
from hypothesis import given
from hypothesis import strategies as st


def thing(verb: Verb, kind: str = "red ball", number: int | None = 1) -> Command:
    return Command(verb=verb, kind=kind, number=number)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("turn left", Command(verb=Verb.LEFT)),
        ("  Turn\tRIGHT \n", Command(verb=Verb.RIGHT)),
        ("move forward", Command(verb=Verb.FORWARD)),
        ("move forward 3", Command(verb=Verb.FORWARD, count=3)),
        ("pick up", Command(verb=Verb.PICK_UP)),
        ("pickup", Command(verb=Verb.PICK_UP)),
        ("drop", Command(verb=Verb.DROP)),
        ("toggle", Command(verb=Verb.TOGGLE)),
        ("done", Command(verb=Verb.DONE)),
        ("check available actions", Command(verb=Verb.CHECK)),
        ("go to red ball 1", thing(Verb.GO_TO)),
        ("go to red ball", thing(Verb.GO_TO, number=None)),
        ("pick up red ball 12", thing(Verb.PICK_UP, number=12)),
        ("pickup red ball 1", thing(Verb.PICK_UP)),
        ("drop next to red ball 1", thing(Verb.DROP_NEXT_TO)),
        ("open red locked door 1", thing(Verb.OPEN, "red door")),
        ("close red open door 1", thing(Verb.CLOSE, "red door")),
        ("go through red door 1", thing(Verb.GO_THROUGH, "red door")),
        ("toggle and go through red closed door 1", thing(Verb.GO_THROUGH, "red door")),
    ],
)
def test_a_command_is_understood(text: str, command: Command) -> None:
    assert parse(text, macros=True) == command


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", Malformed.EMPTY),
        (" \n\t", Malformed.EMPTY),
        ("go " * MAX_LENGTH, Malformed.LONG),
        ("turn left\nturn left", Malformed.LINES),
        ("turn", Malformed.UNKNOWN),
        ("turn left 2", Malformed.UNKNOWN),
        ("move forward 0", Malformed.UNKNOWN),
        ("move forward 21", Malformed.UNKNOWN),
        ("move forward -1", Malformed.UNKNOWN),
        ("go to", Malformed.UNKNOWN),
        ("go to ball", Malformed.UNKNOWN),
        ("go to red ball 0", Malformed.UNKNOWN),
        ("go to red ball 1.", Malformed.UNKNOWN),
        ("go to red ball ١", Malformed.UNKNOWN),
        ("toggle and go through", Malformed.UNKNOWN),
        ("open", Malformed.UNKNOWN),
        ("turn left\x00", Malformed.UNKNOWN),
    ],
)
def test_what_is_no_command_is_told_apart(text: str, why: Malformed) -> None:
    assert parse(text, macros=True) is why


@pytest.mark.parametrize("text", ["go to red ball 1", "move forward 2", "pick up red ball 1", "open red door 1"])
def test_manoeuvres_are_no_commands_where_single_steps_are_played(text: str) -> None:
    assert parse(text, macros=False) is Malformed.UNKNOWN


@pytest.mark.parametrize("text", ["turn left", "move forward", "pick up", "pickup", "drop", "toggle", "done"])
def test_single_steps_are_commands_in_both(text: str) -> None:
    assert parse(text, macros=False) == parse(text, macros=True)


@given(st.text(st.characters()), st.booleans())
def test_no_text_breaks_the_parser(text: str, macros: bool) -> None:
    parse(text, macros=macros)


@given(st.sampled_from(["go to ", "pick up ", "drop next to "]), st.text("0123456789 abc door red\n", max_size=60))
def test_no_text_like_a_command_breaks_the_parser(start: str, text: str) -> None:
    parse(start + text, macros=True)
