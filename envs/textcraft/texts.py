"""How the world speaks: one phrase book for large models, one with as few words as possible for tiny ones."""

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
    """Picking up what is not there."""
    only_crafted: str
    """Picking up what a crafting command makes."""
    no_recipe: str
    wrong_recipe: str
    missing: str
    malformed: Mapping[MalformedCraft, str]


_GET, _CRAFT = "get 2 oak log", "craft 4 oak plank using 1 oak log"
"""Whole commands: of a form with gaps, such as `get N item`, a small model repeats the gaps."""
_COMMANDS = f"Give one command, such as: {_GET}"

PLAIN = Phrases(
    prompt=(
        "You are in a workshop and craft one item. Answer with one command and nothing else.\n"
        f"Pick up what no crafting command makes, with its amount: {_GET}\n"
        f"Craft by one of the crafting commands, exactly as it is listed: {_CRAFT}\n"
        "See what you hold: inventory\n"
        "Some of the crafting commands are of no use for your goal."
    ),
    opening="Crafting commands:\n{commands}\n\nGoal: craft {goal}.",
    got="Picked up {what}.",
    crafted="Crafted {what}.",
    reached="Crafted {what}. The goal is reached.",
    held="You hold {what}.",
    empty="You hold nothing.",
    not_found="There is no {item} to pick up.",
    only_crafted="There is no {item} to pick up. Craft it: {command}",
    no_recipe="No crafting command here makes {item}. Write one that is listed, such as: {command}",
    wrong_recipe="That is not how {item} is crafted. The crafting command is: {command}",
    missing="You cannot craft {item} yet: you still need {what}.",
    malformed={
        MalformedCraft.EMPTY: f"That was no command. {_COMMANDS}",
        MalformedCraft.LONG: f"That was longer than {MAX_LENGTH} characters. {_COMMANDS}",
        MalformedCraft.LINES: "Give one command at a time, on one line.",
        MalformedCraft.COMMAND: f"A command begins with get, craft or inventory. {_COMMANDS}",
        MalformedCraft.GET: f"After 'get' come an amount from 1 to 999 and an item, such as: {_GET}",
        MalformedCraft.CRAFT: "Write a crafting command as it is listed, such as: {command}",
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
    only_crafted="cannot get",
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
