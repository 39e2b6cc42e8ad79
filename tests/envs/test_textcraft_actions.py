from __future__ import annotations

import pytest
from agym.envs.textcraft.actions import (
    MAX_LENGTH,
    Craft,
    Get,
    Inventory,
    MalformedCraft,
    parse_craft_command,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("get 2 oak", Get(2, "oak")),
        ("get 12 oak log", Get(12, "oak log")),
        ("  GET  2\toak log\n", Get(2, "oak log")),
        ("inventory", Inventory()),
        ("craft 1 oak rod using 2 oak", Craft(1, "oak rod", (("oak", 2),))),
        ("craft 1 oak rod using 1 glue, 2 oak", Craft(1, "oak rod", (("glue", 1), ("oak", 2)))),
        ("craft 1 oak rod using 1 glue , 2 oak", Craft(1, "oak rod", (("glue", 1), ("oak", 2)))),
        ("craft 1 oak rod using 1 glue,2 oak", Craft(1, "oak rod", (("glue", 1), ("oak", 2)))),
        ("Craft 1 oak rod using 1 glue and 2 oak.", Craft(1, "oak rod", (("glue", 1), ("oak", 2)))),
        ("craft 1 oak rod using 1 glue, and 2 oak", Craft(1, "oak rod", (("glue", 1), ("oak", 2)))),
        (
            "craft the 1 oak rod using 1 flint and steel, 2 oak",
            Craft(1, "oak rod", (("flint and steel", 1), ("oak", 2))),
        ),
        ("get the 2 oak", Get(2, "oak")),
    ],
)
def test_a_command_is_understood(text: str, action: object) -> None:
    assert parse_craft_command(text) == action


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", MalformedCraft.EMPTY),
        (" \n\t", MalformedCraft.EMPTY),
        ("get " * MAX_LENGTH, MalformedCraft.LONG),
        ("get 1 oak\nget 1 tin", MalformedCraft.LINES),
        ("take 1 oak", MalformedCraft.COMMAND),
        ("inventory please", MalformedCraft.COMMAND),
        ("get oak", MalformedCraft.GET),
        ("get 0 oak", MalformedCraft.GET),
        ("get -1 oak", MalformedCraft.GET),
        ("get 01 oak", MalformedCraft.GET),
        ("get 1000 oak", MalformedCraft.GET),
        ("get 1.5 oak", MalformedCraft.GET),
        ("get ٢ oak", MalformedCraft.GET),
        ("get 1 oak!", MalformedCraft.GET),
        ("get 1 oak, 1 tin", MalformedCraft.GET),
        ("get 1 öak", MalformedCraft.GET),
        ("get 1 oak\x00", MalformedCraft.GET),
        ("get 1", MalformedCraft.GET),
        ("get the 1", MalformedCraft.GET),
        ("get an oak", MalformedCraft.GET),
        ("the", MalformedCraft.EMPTY),
        ("craft 1 oak rod using 1 oak and, 1 tin,", MalformedCraft.CRAFT),
        ("craft oak rod", MalformedCraft.CRAFT),
        ("craft 1 oak rod", MalformedCraft.CRAFT),
        ("craft 1 oak rod using", MalformedCraft.CRAFT),
        ("craft 1 oak rod using oak", MalformedCraft.CRAFT),
        ("craft 1 oak rod using 1 oak,", MalformedCraft.CRAFT),
        ("craft 1 oak rod using 1 oak 1 tin", MalformedCraft.CRAFT),
    ],
)
def test_what_is_no_command_is_told_apart(text: str, reason: str) -> None:
    assert parse_craft_command(text) == MalformedCraft(reason)


@given(st.text(st.characters()))
def test_no_text_breaks_the_parser(text: str) -> None:
    parse_craft_command(text)


@given(st.sampled_from(["get ", "craft ", "craft 1 a using "]), st.text("0123456789abc ,using\n", max_size=60))
def test_no_text_like_a_command_breaks_the_parser(start: str, text: str) -> None:
    parse_craft_command(start + text)


def test_a_hostile_command_is_read_in_no_time() -> None:
    for text in ("craft 1 " + "a " * 190, "get 1 " + "a" * 390, "craft 1 a using " + "1 a," * 90):
        parse_craft_command(text[:MAX_LENGTH])
