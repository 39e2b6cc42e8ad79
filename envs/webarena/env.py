"""WebArena: its tasks, from its own files, on hosts that a user runs.

The score is 1 where everything holds that the task's check asks for, when the agent stops or has no actions left, and 0
otherwise; where answers are compared by meaning, that is left to the player's judge. What episodes change on the hosts
stays changed: restoring it is up to whoever runs them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from ..errors import EnvFault, EpisodeOver, UnknownTask
from ..protocol import Env, EnvSpec, Json, JudgeRequest, Observation, Runs, Status, Step
from ..web.actions import Action, Drag, GoTo, Malformed, NewTab, Stop, SwitchTab, Type, parse
from ..web.browser import Surfer
from ..web.session import Scene
from ..web.texts import MALFORMED
from ..web.tree import TreeWindow
from ..wire import judge_to
from .checks import check_success, list_questions
from .options import read_webarena_options
from .tasks import CATEGORIES, WebArenaTask, WebArenaTasks, load_tasks
from .texts import ENDED, FORMS, OPENING, PROMPT

__all__ = ["SPEC", "WebArena", "create"]

SPEC = EnvSpec(
    name="webarena",
    version="1",
    summary="WebArena's task files against WebArena hosts of your own",
    splits=("train", "test", *CATEGORIES),
    prompt=PROMPT,
    # a thread of its own only waits for the browser
    runs=Runs.THREAD,
)

_WINDOW = TreeWindow(width=1280, height=720)


def create(options: Mapping[str, Json]) -> WebArena:
    return WebArena(options)


class WebArena(Env):
    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_webarena_options(options)
        self.spec = replace(SPEC, max_turns=self._options.max_steps)
        file = self._options.tasks_file
        self._tasks = load_tasks(Path(file), self._options.hosts) if file else WebArenaTasks(by_id={}, left_out=0)
        self._hosts = tuple(urlsplit(address).netloc for address in self._options.hosts.values())
        self._surfer = Surfer(self._hosts)
        self._task: WebArenaTask | None = None
        """Of the episode under way."""
        self._left = 0

    # --- tasks ---

    @property
    def left_out(self) -> int:
        """Tasks of the file that cannot be played here."""
        return self._tasks.left_out

    def tasks(self, split: str) -> tuple[str, ...]:
        self.check_split(split)
        return tuple(
            task.id
            for task in self._tasks.by_id.values()
            if task.held_out == (split != "train") and split in ("train", "test", task.category)
        )

    def difficulty(self, task: str) -> str | None:
        return self._find(task).category

    def judged(self, task: str) -> bool:
        return bool(self._find(task).check.alike)

    def _find(self, task: str) -> WebArenaTask:
        found = self._tasks.by_id.get(task)
        if found is None:
            raise UnknownTask(f"webarena has no task '{task[:60]}'")
        return found

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        found = self._find(task)
        self._task, self._left = None, 0
        scene = Scene(
            hosts=self._hosts,
            window=_WINDOW,
            tokens=self._options.observation_tokens,
            seed=seed,
            state=_state(found),
        )
        first, *others = found.start
        self._surfer.begin(scene, first)
        for url in others:
            self._surfer.perform(NewTab())
            self._surfer.perform(GoTo(url))
        if others:
            self._surfer.perform(SwitchTab(0))
        self._task, self._left = found, self._options.max_steps
        return self._show(OPENING.format(intent=found.intent, page=self._surfer.see()))

    def _show(self, text: str) -> Observation:
        return Observation(text=text, picture=self._surfer.picture() if self._options.screenshots else None)

    def step(self, action: str) -> Step:
        task = self._task
        if task is None:
            raise EpisodeOver("webarena has no episode under way: reset it first")
        self._left -= 1
        parsed = parse(action)
        if isinstance(parsed, Stop):
            return self._finish(task, parsed.answer, stopped=True)
        text, status = self._perform(parsed)
        return self._observe(text, status) if self._left else self._finish(task, "", stopped=False, status=status)

    def _perform(self, parsed: Action | Malformed) -> tuple[str, Status]:
        if isinstance(parsed, Malformed | Drag):
            fault = parsed if isinstance(parsed, Malformed) else Malformed.UNKNOWN
            return MALFORMED[fault].format(forms=FORMS), Status.INVALID
        if isinstance(parsed, Type) and parsed.enter is None:
            parsed = replace(parsed, enter=True)
        assert not isinstance(parsed, Stop)
        reply = self._surfer.perform(parsed)
        return "\n".join(filter(None, (reply.text, self._surfer.see()))), reply.status

    def _observe(self, text: str, status: Status) -> Step:
        return Step(observation=self._show(text), status=status)

    def _finish(self, task: WebArenaTask, answer: str, *, stopped: bool, status: Status = Status.OK) -> Step:
        """End the episode and check its success, no matter how it ended."""
        self._task = None
        check = check_success(task.check, answer, self._surfer.visit, self._options.hosts)
        holds = self._surfer.run(check)
        self._surfer.end()
        request = _ask_judge(task, answer, holds=holds)
        success = holds and not task.check.alike
        return Step(
            observation=Observation(text=ENDED),
            reward=float(success),
            terminated=stopped,
            truncated=not stopped,
            status=status,
            info={"success": success} | ({} if request is None else {"judge": judge_to(request)}),
        )

    def end(self) -> None:
        self._task = None
        self._surfer.end()

    def close(self) -> None:
        self._task = None
        self._surfer.close()

    def noise_action(self, rng: Random) -> str | None:
        if self._task is None:
            return None
        numbers = [number for number, _ in self._surfer.seen]
        return rng.choice(("scroll [down]", "go_back", *(f"hover [{number}]" for number in numbers)))

    def corpus(self) -> Iterator[str]:
        yield PROMPT
        yield ENDED
        yield from (text.format(forms=FORMS) for text in MALFORMED.values())


def _ask_judge(task: WebArenaTask, answer: str, *, holds: bool) -> JudgeRequest | None:
    """What is left to a judge: whether an answer agrees with all references, or gives the reason why a task cannot be
    done, which is right without a judge only where it is N/A."""
    if not (holds or task.check.unachievable):
        return None
    questions = list_questions(task.check, task.intent, answer)
    return JudgeRequest(questions=questions, reward=1.0, required=bool(task.check.alike)) if questions else None


def _state(task: WebArenaTask) -> Mapping[str, Json] | None:
    """Cookies of a login that WebArena's own script has saved."""
    if task.state is None:
        return None
    try:
        read = json.loads(task.state.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise EnvFault(f"webarena's task {task.id} needs a login saved at {task.state}: {error}") from error
    if not isinstance(read, dict):
        raise EnvFault(f"{task.state} is not a saved login")
    return read
