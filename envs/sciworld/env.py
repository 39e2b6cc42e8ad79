"""ScienceWorld: carry out an experiment of primary-school science in a simulated house.

A task is one variation of one of thirty experiments. The score is what the simulator gives for the progress so far,
from 0 to 1; it is 1 when the experiment is done, and 0 after a mistake that cannot be undone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from random import Random

from ..errors import EpisodeOver, UnknownTask
from ..options import read_options
from ..protocol import Env, EnvSpec, Json, Observation, Status, Step, parse_numbered, split_words
from .java import Simulator, share_javas
from .options import SIMPLIFICATIONS, SciWorldOptions
from .rooms import TEXTS, SeenRooms, drop_the_usual
from .tasks import GROUPS, HELD_OUT, PARTS, TASKS, ScienceTask
from .texts import ASKED_BACK, DONE, FAILED, MALFORMED, PROMPT, TELEPORT, TERSE, UNKNOWN, read_status, tidy_text

__all__ = ["SPEC", "SciWorld", "create"]

FAMILIES = ("measure", "test_conductivity", "find", "chemistry_mix", "lifespan")
"""Groups with a split of their own: the part of test that belongs to them."""

SPEC = EnvSpec(
    name="sciworld",
    version="1",
    summary="carry out an experiment of primary-school science in a simulated house",
    splits=(*PARTS, HELD_OUT, *FAMILIES),
    prompt=PROMPT,
)

_LONGEST_ACTION = 200
_NO_ELECTRICITY = "noElectricalAction"
_ELECTRICAL = frozenset((*GROUPS["power"], *GROUPS["test_conductivity"]))
_LOOK_AROUND = "look around"
_IDLE = (_LOOK_AROUND, "inventory", "wait1")
_TRIES = ("look at", "look in", "pick up", "open", "close", "activate", "deactivate", "go to", "read", "flush", "mix")


def create(options: Mapping[str, Json]) -> SciWorld:
    return SciWorld(options)


class SciWorld(Env):
    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_options(SciWorldOptions, options)
        prompt = PROMPT + TELEPORT if "teleportAction" in self._options.simplifications else PROMPT
        prompt += TERSE if self._options.terse else ""
        self.spec = replace(SPEC, prompt=prompt, max_turns=self._options.max_steps)
        self._javas = share_javas(self._options.heap_mb, self._options.processes)
        self._simulator: Simulator | None = None
        self._left = 0
        """Actions that the episode under way may still take."""
        self._score = 0.0
        self._asked_back = False
        """The simulator waits for the number of what was meant."""
        self._room = ""
        """The first line of what was shown of the room."""
        self._seen: SeenRooms | None = None
        """Where rooms are not described in full again."""

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        self.check_split(split)
        whole = (*PARTS, HELD_OUT)
        part = split if split in whole else "test"
        wanted = [
            TASKS[name]
            for name in TASKS
            if name in self._options.tasks and (split in whole or TASKS[name].group == split)
        ]
        return tuple(f"{task.name}/{number}" for task in wanted for number in task.variations(part))

    def difficulty(self, task: str) -> str:
        return _find(task)[0].group

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        """The seed changes nothing: the variation has settled all that is random."""
        simulator = self._load(task)
        self._left, self._score, self._asked_back = self._options.max_steps, 0.0, False
        seen = tidy_text(simulator.look())
        self._room = _name_room(seen)
        self._seen = None if self._options.repeats else SeenRooms()
        return self._observation(simulator, f"{simulator.description()}\n\n{self._shorten(seen)}")

    def step(self, action: str) -> Step:
        simulator = self._simulator
        if simulator is None or not self._left:
            raise EpisodeOver("sciworld has no episode under way: reset it first")
        self._left -= 1
        command = _tidy_command(action)
        if not command or len(command) > _LONGEST_ACTION or not (command.isascii() and command.isprintable()):
            return self._answer(simulator, MALFORMED, Status.INVALID, over=False)
        if self._asked_back and not command.isdecimal():
            simulator.take_back()  # or it would take the next command for a bad answer
        outcome = simulator.step(command)
        self._asked_back = outcome.text.startswith(ASKED_BACK)
        # a mistake that cannot be undone scores -1
        self._score = min(1.0, max(0.0, outcome.score))
        status = read_status(outcome.text)
        text = UNKNOWN if status is Status.INVALID else self._shorten(tidy_text(outcome.text))
        over = outcome.over or outcome.score < 0
        more = f"\n{DONE if self._score == 1.0 else FAILED}" if over else self._describe_entered(simulator)
        return self._answer(simulator, text + more, status, over=over)

    def _describe_entered(self, simulator: Simulator) -> str:
        if not self._options.look:
            return ""
        seen, before = tidy_text(simulator.look()), self._room
        self._room = _name_room(seen)
        return "" if self._room == before else f"\n\n{self._shorten(seen)}"

    def _shorten(self, text: str) -> str:
        text = drop_the_usual(text) if self._options.terse else text
        return text if self._seen is None else self._seen.shorten(text)

    def _answer(self, simulator: Simulator, text: str, status: Status, *, over: bool) -> Step:
        truncated = not over and not self._left
        if over:
            self._left = 0
        return Step(
            observation=self._observation(simulator, text),
            reward=self._score,
            terminated=over,
            truncated=truncated,
            status=status,
            info={"success": over and self._score == 1.0},
        )

    def _observation(self, simulator: Simulator, text: str) -> Observation:
        listed = self._options.valid_actions and self._left > 0
        return Observation(text=text, valid_actions=simulator.valid_actions() if listed else None)

    def _load(self, task: str, *, solve: bool = False) -> Simulator:
        found, variation = _find(task)
        if self._simulator is None or not self._simulator.alive:
            self.close()
            self._simulator = self._javas.simulator()
        self._left = 0
        self._simulator.load(found.name, variation, self._simplifications(found), solve=solve)
        return self._simulator

    def _simplifications(self, task: ScienceTask) -> str:
        chosen = [name for name in SIMPLIFICATIONS if name in self._options.simplifications]
        return ",".join(name for name in chosen if name != _NO_ELECTRICITY or task.name not in _ELECTRICAL)

    def close(self) -> None:
        simulator, self._simulator, self._left = self._simulator, None, 0
        if simulator is not None:
            self._javas.give_back(simulator)

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        """The simulator's own solution without the commands that do nothing, where it works and fits an episode."""
        found, variation = _find(task)
        if variation in found.unsolved:
            return None
        actions = self._load(task, solve=True).solution()
        # played: it may go on after the end, and simplifications may have changed its world
        whole, needed = self._play_solution(task, actions)
        shorter = whole if needed == whole else self._play_solution(task, needed)[0]
        return next((each for each in (shorter, whole) if each and len(each) <= self._options.max_steps), None)

    def _play_solution(self, task: str, actions: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the actions up to success, none without it, and those of them that did something."""
        simulator, needed = self._load(task), list[str]()
        for at, action in enumerate(actions, start=1):
            outcome = simulator.step(action)
            useless = read_status(outcome.text) is Status.REFUSED and not outcome.text.startswith(ASKED_BACK)
            if not useless and not (self._options.look and action == _LOOK_AROUND):
                needed.append(action)
            if outcome.over or outcome.score < 0:
                return (tuple(actions[:at]) if outcome.score == 1.0 else ()), tuple(needed)
        return (), ()

    def noise_action(self, rng: Random) -> str | None:
        """Something to try with a thing nearby; nothing that could end the episode."""
        if self._simulator is None or not self._left:
            return None
        if self._asked_back:
            return "0"
        objects = self._simulator.objects()
        if not objects or rng.random() < 0.2:
            return rng.choice(_IDLE)
        return f"{rng.choice(_TRIES)} {rng.choice(objects)}"

    def corpus(self) -> Iterator[str]:
        """The prompt, and every word seen when all solutions were played."""
        yield self.spec.prompt
        yield from (TERSE, UNKNOWN, MALFORMED, DONE, FAILED, *TEXTS)
        yield (resources.files(__package__) / "data" / "words.txt").read_text("utf-8")


def _tidy_command(action: str) -> str:
    """A sentence's capital letter, articles and full stop are no part of a command; the case of a name is."""
    command = " ".join(split_words(action))
    return command[:1].lower() + command[1:]


def _name_room(seen: str) -> str:
    return seen.partition("\n")[0]


def _find(task: str) -> tuple[ScienceTask, int]:
    """Find a task and variation by the id `name/variation`."""
    name, variation = parse_numbered(task, "/") or ("", 0)
    found = TASKS.get(name)
    if found is None:
        raise UnknownTask(f"sciworld has no task '{task[:60]}'")
    if not found.plays(variation):
        raise UnknownTask(f"sciworld's {name} has no variation {variation} that is the same each time")
    return found, variation
