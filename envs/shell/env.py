"""Shell: solve a task in a terminal, in a jail that each episode has for itself.

An action is a command for bash. An episode ends with `done`, or at its limit of commands or of time; what the agent has
left is then graded in another jail of the same kind, by checks that it has not seen.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

from ..errors import EnvFault, EpisodeOver, NotInstalled, UnknownTask
from ..options import read_options
from ..protocol import Env, EnvSpec, Json, Observation, Runs, Status, Step
from .folders import TaskFolder, read_folder
from .grading import can_test, grade
from .jail.trees import encode_files
from .options import ShellOptions
from .tasks import ShellTask, list_ids, load_task
from .terminal import Limits, Result, Terminal, explain_unavailable
from .texts import DONE, PROMPT, PROMPT_OF_FOLDERS, show_result

__all__ = ["SPEC", "Shell", "create"]

_HELD_OUT: Mapping[str, bool] = {"train": False, "test": True}
_LONGEST = 4_000
_NOT_FOUND = (126, 127)
_LOOKUPS = ("ls", "pwd", "ls -a", "cat README.md")

SPEC = EnvSpec(
    name="shell",
    version="1",
    summary="work in a terminal: find, fix, test, handle data and use git in small repositories",
    splits=tuple(_HELD_OUT),
    prompt=PROMPT,
    max_turns=6,
    runs=Runs.POOL,
)


def create(options: Mapping[str, Json]) -> Shell:
    """Make an instance from options; the registry's entry point."""
    return Shell(read_options(ShellOptions, options))


class Shell(Env):
    spec = SPEC

    def __init__(self, options: ShellOptions | None = None) -> None:
        self._options = options or ShellOptions()
        self._limits = Limits(
            command_s=self._options.command_s,
            memory_bytes=self._options.memory_mb << 20,
            processes=self._options.processes,
            disk_bytes=self._options.disk_mb << 20,
            output_bytes=self._options.output_chars,
        )
        self._episode: _Episode | None = None
        self._folder: TaskFolder | None = None
        if self._options.tasks_folder:
            if not can_test():
                raise NotInstalled("tasks in folders are graded by pytest: pip install pytest")
            self._folder = read_folder(Path(self._options.tasks_folder).expanduser())
            self.spec = replace(SPEC, prompt=PROMPT_OF_FOLDERS, max_turns=self._options.max_steps)

    def describe(self) -> EnvSpec:
        """The spec; refused, before any episode, where no terminal can be started."""
        if (reason := explain_unavailable()) is not None:
            raise NotInstalled(reason)
        return self.spec

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        self.check_split(split)
        if self._folder is not None:
            return tuple(self._folder.splits[split])
        return list_ids(self._options.groups, held_out=_HELD_OUT[split])

    def difficulty(self, task: str) -> str:
        return self._find(task).group

    def _find(self, task: str) -> ShellTask:
        if self._folder is not None:
            if (known := self._folder.find(task)) is None:
                raise UnknownTask(f"there is no task '{task[:60]}' in {self._options.tasks_folder} that can be played")
            return known
        found = load_task(task)
        if found.group not in self._options.groups:
            raise UnknownTask(f"shell has no task '{task[:60]}' in the groups {', '.join(self._options.groups)}")
        return found

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        found = self._find(task)
        self.end()
        self._episode = _Episode(found, self._limits, self._options.tests_s)
        where = f"You are in {found.work}." if self._folder else f"Files: {', '.join(sorted(found.files))}"
        return Observation(text=f"{found.goal}\n{where}")

    def step(self, action: str) -> Step:
        episode = self._episode
        if episode is None:
            raise EpisodeOver("shell has no episode under way: reset it first")
        done = action.strip() == DONE
        text, status = ("", Status.OK) if done else episode.act(action)
        cut = not done and episode.is_used_up(self._options)
        if not (done or cut):
            return Step(observation=Observation(text=text), status=status)
        score = episode.score()
        self.end()
        ending = "The task is solved." if score else "The task is not solved."
        return Step(
            observation=Observation(text=f"{text}\n{ending}".strip()),
            reward=score,
            terminated=done,
            truncated=cut,
            status=status,
        )

    def end(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None:
            episode.close()

    def close(self) -> None:
        self.end()

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        solution = self._find(task).solution
        return (*solution, DONE) if solution else None

    def advice(self) -> str | None:
        return None if self._episode is None else self._episode.advice()

    def noise_action(self, rng: Random) -> str | None:
        """A look around; never a change, which could not be undone."""
        return None if self._episode is None else rng.choice(_LOOKUPS)

    def corpus(self) -> Iterator[str]:
        """The guide, and training's tasks with their files and solutions."""
        yield self.spec.prompt
        for task in map(self._find, self.tasks("train")):
            texts = (data if isinstance(data, str) else data.decode("utf-8", "replace") for data in task.files.values())
            yield from (task.goal, *task.files, *texts, *task.solution)


class _Episode:
    def __init__(self, task: ShellTask, limits: Limits, tests_s: float) -> None:
        self._task = task
        self._limits = limits
        self._tests_s = tests_s
        self._num_steps = 0
        self._seconds = 0.0
        self._cpu_s = 0.0
        self._plan: list[str] | None = [*task.solution, DONE] if task.solution else None
        """What of the solution is left; None once the agent went a way of its own."""
        self._terminal = Terminal(limits, task.work)
        try:
            self._begin()
        except BaseException:
            self._terminal.close()
            raise

    def _begin(self) -> None:
        trouble = self._terminal.put(encode_files(self._task.files))
        if not trouble and self._task.setup:
            result = self._terminal.run(f"set -e\n{self._task.setup}", fresh=True)
            trouble = show_result(result) if result.code or result.ended != "exit" else ""
        if trouble:
            raise EnvFault(f"task '{self._task.id}' cannot be set up here: {trouble}")

    def act(self, action: str) -> tuple[str, Status]:
        self._num_steps += 1
        if trouble := _find_trouble(action):
            return trouble, Status.INVALID
        begun = time.monotonic()
        result = self._terminal.run(action)
        self._seconds += time.monotonic() - begun
        self._cpu_s = result.cpu_s
        understood = not _is_nonsense(result)
        self._follow_plan(action, changes_nothing=not understood and action.isidentifier())
        return show_result(result), Status.OK if understood else Status.INVALID

    def _follow_plan(self, action: str, *, changes_nothing: bool) -> None:
        if self._plan and action == self._plan[0]:
            del self._plan[0]
        elif not (changes_nothing or action in _LOOKUPS):
            self._plan = None

    def advice(self) -> str | None:
        return self._plan[0] if self._plan else None

    def is_used_up(self, options: ShellOptions) -> bool:
        return self._num_steps >= options.max_steps or max(self._seconds, self._cpu_s) >= options.episode_s

    def score(self) -> float:
        entries = self._terminal.get()
        self.close()
        return float(entries is not None and grade(self._task, entries, self._limits, self._tests_s))

    def close(self) -> None:
        self._terminal.close()


def _find_trouble(action: str) -> str:
    """The reason why a text is not a command, shown to the agent; empty where it is one."""
    if not action.strip():
        return f"Write a command for bash, or {DONE}."
    if len(action) > _LONGEST:
        return f"That is longer than {_LONGEST} characters."
    # half a surrogate pair could not be passed on, and control characters are no part of a command
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", action):
        return "A command is plain text, without control characters."
    return ""


def _is_nonsense(result: Result) -> bool:
    """Whether bash found no such command, or could not read it."""
    return result.code in _NOT_FOUND or (result.code == 2 and b"syntax error" in result.output[:200])
