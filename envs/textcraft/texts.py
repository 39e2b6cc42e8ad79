"""How the world speaks: one phrase book for large models, one with as few words as will do for tiny ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .actions import MAX_LENGTH, MalformedCraft

__all__ = ["PLAIN", "TERSE", "Phrases"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """Every sentence of the environment, as format strings."""

    prompt: str
    """Told once, before the first observation."""
    opening: str
    got: str
    crafted: str
    reached: str
    held: str
    empty: str
    not_found: str
    """Picking up what does not lie about."""
    no_recipe: str
    wrong_recipe: str
    missing: str
    malformed: Mapping[MalformedCraft, str]


_PLAIN_COMMANDS = "the commands are 'get N item', 'craft N item using N item, N item' and 'inventory'"

PLAIN = Phrases(
    prompt=(
        "You are in a workshop and have to craft one item. Everything that no crafting command makes can be picked up."
        " Each turn, give exactly one command:\n"
        "get N item - pick up N of an item that needs no crafting, such as: get 2 oak log\n"
        "craft N item using N item, N item - one of the crafting commands, amounts exactly as listed, such as:"
        " craft 4 oak plank using 1 oak log\n"
        "inventory - see what you hold\n"
        "Some of the crafting commands are of no use for your goal."
    ),
    opening="Crafting commands:\n{commands}\n\nGoal: craft {goal}.",
    got="Picked up {what}.",
    crafted="Crafted {what}.",
    reached="Crafted {what}. The goal is reached.",
    held="You hold {what}.",
    empty="You hold nothing.",
    not_found="There is no {item} lying about.",
    no_recipe="No crafting command here makes {item}.",
    wrong_recipe="That is not how {item} is crafted: use the command exactly as listed.",
    missing="You cannot craft {item} yet: you still need {what}.",
    malformed={
        MalformedCraft.EMPTY: f"That was no command; {_PLAIN_COMMANDS}.",
        MalformedCraft.LONG: f"That was longer than {MAX_LENGTH} characters; {_PLAIN_COMMANDS}.",
        MalformedCraft.LINES: "Give one command at a time, on one line.",
        MalformedCraft.COMMAND: f"That is not a command; {_PLAIN_COMMANDS}.",
        MalformedCraft.GET: "That could not be understood: write 'get N item', with a number from 1 to 999.",
        MalformedCraft.CRAFT: (
            "That could not be understood: write 'craft N item using N item, N item', numbers from 1 to 999."
        ),
    },
)

TERSE = Phrases(
    prompt="",
    opening="{commands}\ngoal {goal}",
    got="got {what}",
    crafted="crafted {what}",
    reached="reached {what}",
    held="have {what}",
    empty="have nothing",
    not_found="cannot get",
    no_recipe="cannot craft",
    wrong_recipe="wrong recipe",
    missing="missing {what}",
    malformed={
        MalformedCraft.EMPTY: "bad command",
        MalformedCraft.LONG: "bad command",
        MalformedCraft.LINES: "bad command",
        MalformedCraft.COMMAND: "bad command",
        MalformedCraft.GET: "bad get",
        MalformedCraft.CRAFT: "bad craft",
    },
)
