"""One module per command: `add_arguments(parser)` says what it takes, `run(arguments, shell)` does it.

COMMANDS is all of them, in the order of `agym --help`. A module is imported when its command is called, not before.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["COMMANDS"]

COMMANDS: Mapping[str, str] = {
    "run": "train the agent that a recipe describes",
    "eval": "measure a checkpoint or a model on a recipe's eval tasks",
    "export": "write a checkpoint as a model folder for other programs",
    "validate": "check recipes, and point at every mistake",
    "plan": "show what a recipe would do, before it takes a GPU",
    "show": "print a recipe as it is after extends, vars and settings",
    "schema": "print a schema, or what one key of a recipe means",
    "recipes": "list the recipes that come with agym",
    "new": "write a first recipe of your own",
    "envs": "list, check, play and serve environments",
    "doctor": "say what this machine has, and what a recipe lacks",
    "completion": "print a completion script for a shell",
}
