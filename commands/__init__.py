"""One module per command, with `add_arguments(parser)` and `run(arguments, shell)`; imported when it is called.

COMMANDS lists them in the order of `agym --help`.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["COMMANDS", "FOLDERS"]

COMMANDS: Mapping[str, str] = {
    "run": "train the agent that a recipe describes",
    "eval": "evaluate a checkpoint or a model on a recipe's eval tasks",
    "view": "read the episodes that a run recorded",
    "report": "write curves, evaluations and episodes of runs to one page",
    "export": "write a checkpoint as a model folder for other programs",
    "chat": "talk to a model at the terminal",
    "serve": "serve a model on this machine to any client of OpenAI's API",
    "validate": "check recipes and point at every mistake",
    "plan": "show what a recipe would do, before it uses a GPU",
    "show": "print a recipe with extends, vars and settings applied",
    "schema": "print a schema, or explain one key of a recipe",
    "recipes": "list the recipes that come with agym",
    "new": "write a first recipe of your own",
    "envs": "list, check, play and serve environments",
    "models": "list and get pretrained models, and say where they are",
    "doctor": "report on this machine, what a recipe lacks, damage in a run",
    "completion": "print a completion script for a shell",
}

FOLDERS: Mapping[str, str] = {
    "chat": "model",
    "models": "model",
    "report": "viewing",
    "serve": "model",
    "view": "viewing",
}
"""Commands whose module is in a folder of its own."""
