"""TextWorld: text adventures made by its generator, played by its rules and told in our own words.

The score is the share of a game's quests that are done: 0, then 1, where it has one, as generated games have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from ..errors import BadOption, EpisodeOver, UnknownTask
from ..options import read_options
from ..protocol import Env, EnvSpec, Json, Observation, Status, Step, parse_numbered, split_words
from .games import GameProgression, Inform7Game, generate_game, load_game
from .options import TextWorldOptions
from .view import View

__all__ = ["SPEC", "TextWorld", "create"]

FIRST_SEED: Mapping[str, int] = {"train": 0, "test": 1_000_000}

SPEC = EnvSpec(
    name="textworld",
    version="1",
    summary="reach a goal in a generated text adventure",
    splits=tuple(FIRST_SEED),
    prompt=(
        "You are in a house of several rooms, and have a goal. Keys open what is locked; what you need may be in"
        " another room, or in something closed. Each turn, give one command, such as:\n"
        "go north\nopen chest\nunlock wooden door with red key\ntake apple\ntake apple from table\n"
        "put apple on table\ninsert apple into chest\ndrop apple\neat apple"
    ),
)

_LONGEST_COMMAND = 200
_MOST_SEEDS = 100_000_000
"""All tries of a seed's game fit the generator's 32 bits."""
_IDLE = ("look", "inventory", "examine")
"""What these tell is said with every command."""
_UNKNOWN = "That is not a command."
_NOT_NOW = "You cannot do that here and now."


def create(options: Mapping[str, Json]) -> TextWorld:
    return TextWorld(options)


class TextWorld(Env):
    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_options(TextWorldOptions, options)
        self.spec = replace(SPEC, max_turns=self._options.max_steps)
        self._files = _files(Path(self._options.games)) if self._options.games else None
        self._game: Any = None
        self._progress: Any = None
        self._commands: Mapping[str, Any] = {}
        """What can be done now, and what it does."""
        self._left = 0

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        self.check_split(split)
        if self._files is not None:
            return tuple(task for task in self._files if task.startswith(f"{split}/"))
        first = FIRST_SEED[split]
        return tuple(f"seed-{seed}" for seed in range(first, first + self._options.seeds))

    def _find(self, task: str) -> Any:
        if self._files is not None:
            if task not in self._files:
                raise UnknownTask(f"there is no game '{task[:60]}' in {self._options.games}")
            return load_game(self._files[task])
        found = parse_numbered(task)
        if found is None or found[0] != "seed" or found[1] >= _MOST_SEEDS:
            raise UnknownTask(f"textworld has no task '{task[:60]}': expected one such as seed-17")
        return generate_game(self._options.rooms, self._options.objects, self._options.quest_length, found[1])

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        """The seed changes nothing."""
        self._game = self._find(task)
        self._progress, self._left = GameProgression(self._game), self._options.max_steps
        self._list()
        return self._observe(f"Goal: {self._goal()}\n{self._view().text()}")

    def _goal(self) -> str:
        last = [f"{_plain(quest.commands[-1])}{self._where(quest)}" for quest in self._game.quests if quest.commands]
        return f"{'; '.join(last)}." if len(last) == len(self._game.quests) else " ".join(self._game.objective.split())

    def _where(self, quest: Any) -> str:
        """The room, where the command alone would not say it."""
        action = next((event.actions[-1] for event in quest.win_events if event.actions), None)
        if action is None or action.name != "drop":
            return ""
        room = next(place.name for place in action.variables if place.type == "r")
        return f" in the {self._game.infos[room].name}"

    def _view(self) -> View:
        return View(self._game, self._progress.state)

    def step(self, action: str) -> Step:
        if not self._left:
            raise EpisodeOver("textworld has no episode under way: reset it first")
        self._left -= 1
        command = _plain(action)
        if len(action) > _LONGEST_COMMAND or command not in self._commands:
            known = command.partition(" ")[0] in self._verbs() and len(action) <= _LONGEST_COMMAND
            return self._finish_step(*((_NOT_NOW, Status.REFUSED) if known else (_UNKNOWN, Status.INVALID)))
        self._progress.update(self._commands[command])
        self._list()
        return self._finish_step(self._view().text(), Status.OK)

    def _finish_step(self, text: str, status: Status) -> Step:
        won, lost = bool(self._progress.completed), bool(self._progress.failed)
        if won or lost:
            self._left = 0
        ending = "\nThe goal is reached." if won else "\nThe goal can no longer be reached." if lost else ""
        step = Step(
            observation=self._observe(text + ending),
            reward=1.0 if won else self._share(),
            terminated=won or lost,
            truncated=not (won or lost or self._left),
            status=status,
            info={"state": self._view().digest()},
        )
        if step.ended:
            self._left = 0
        return step

    def _share(self) -> float:
        most = sum(quest.reward for quest in self._game.quests)
        return min(1.0, max(0.0, self._progress.score / most)) if most > 0 else 0.0

    def _list(self) -> None:
        actions = [each for each in self._progress.valid_actions if not each.name.startswith(_IDLE)]
        named = zip(Inform7Game(self._game).gen_commands_from_actions(actions), actions, strict=True)
        # two actions may have one command: the first by name, whatever the order in which they were found
        ordered = sorted(named, key=lambda pair: (_plain(pair[0]), str(pair[1])), reverse=True)
        self._commands = dict(sorted({_plain(command): action for command, action in ordered}.items()))

    def _verbs(self) -> set[str]:
        return {command.partition(" ")[0] for command in self._game.kb.inform7_commands.values()} - set(_IDLE)

    def _observe(self, text: str) -> Observation:
        return Observation(text=text, valid_actions=tuple(self._commands) if self._left else None)

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        """The game's own walkthrough, if it fits an episode."""
        self.reset(task, 0)
        commands = tuple(map(_plain, self._game.walkthrough or ()))
        for at, command in enumerate(commands, start=1):
            step = self.step(command)
            if step.ended:
                return commands[:at] if step.reward == 1.0 else None
        self._left = 0
        return None

    def noise_action(self, rng: Random) -> str | None:
        """A random possible command whose effect can be undone."""
        if not self._left:
            return None
        return rng.choice([command for command in self._commands if not command.startswith("eat ")])

    def corpus(self) -> Iterator[str]:
        """The prompt, and what the first games of training show on the way to their goals."""
        yield from (self.spec.prompt, _UNKNOWN, _NOT_NOW, "The goal is reached. The goal can no longer be reached.")
        for task in self.tasks("train")[:100]:
            actions = self.expert(task, 0) or ()
            yield self.reset(task, 0).text
            for action in actions:
                yield f"{action}\n{self.step(action).observation.text}"
        self._left = 0


def _plain(command: str) -> str:
    """Normalise letter case, white space, articles and a full stop at the end."""
    return " ".join(split_words(command.lower()))


def _files(folder: Path) -> Mapping[str, Path]:
    """A folder's games by their names."""
    found = {f"{split}/{file.stem}": file for split in FIRST_SEED for file in sorted((folder / split).glob("*.json"))}
    if not found:
        raise BadOption(f"textworld finds no games in '{folder}': expected .json files in train and test")
    return found
