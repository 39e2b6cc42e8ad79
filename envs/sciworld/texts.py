"""Texts for the agent: our own, and the simulator's made shorter."""

from __future__ import annotations

import re

from ..protocol import Status

__all__ = [
    "ASKED_BACK",
    "DONE",
    "FAILED",
    "MALFORMED",
    "PROMPT",
    "TELEPORT",
    "TERSE",
    "UNKNOWN",
    "read_status",
    "tidy_text",
]

PROMPT = """\
You are in a house with a garden and carry out an experiment. Each turn, give one command. X and Y stand for things as \
they are called in what you see, with their place where a name is not enough: apple, cup in cupboard, door to kitchen.
look around | look at X | look in X | read X | inventory | task
go X | open X | close X | pick up X | put down X | move X to Y | focus on X
activate X | deactivate X | use X on Y | connect X to Y | disconnect X
pour X in Y | dunk X in Y | mix X | eat X | flush X | wait | wait1
You go from room to room through open doors. What you carry is in the inventory. mix X mixes what is in the container \
X; wait lets ten steps of time pass, wait1 one. Focus only on what the task tells you to focus on: a wrong focus ends \
it. Where a name could mean several things you are asked which; answer with the number."""
TELEPORT = "\nteleport to X takes you to any room at once."
TERSE = "\nUnless you are told otherwise, things are open, switched off and empty."
MALFORMED = "That is not a command: give one short line of plain letters, such as look around."
UNKNOWN = "No command reads like that, or it names something that is not here."
DONE = "The task is done."
FAILED = "That was the wrong thing to do: the task has failed."
ASKED_BACK = "Ambiguous request:"

_INVALID = re.compile(r"No known action matches|Unknown action\.|ERROR: (Unknown response|Value out of range)|<?ERROR")
_REFUSED = re.compile(
    rf"{ASKED_BACK}|It'?s not clear|I'm not sure|You can't|Something can't|You must disconnect|Connections must"
    r"|That (can't|object|is already)"
    r"|[^\n]*( is not | isn't open|is already |can't be | appears broken|so there's nothing| does not contain"
    r"|doesn't appear|aren't able to)[^\n]*\Z"
)
_ASKING = f"{ASKED_BACK} Please enter the number for the action you intended (or blank to cancel):"


def read_status(text: str) -> Status:
    if _INVALID.match(text):
        return Status.INVALID
    return Status.REFUSED if _REFUSED.match(text) else Status.OK


def tidy_text(text: str) -> str:
    """Replace tabs and remove trailing blanks."""
    text = text.replace(_ASKING, "Which do you mean? Answer with its number.")
    return "\n".join(line.rstrip().replace("\t", "  ") for line in text.strip().splitlines())
