"""Tasks on sites that are served on this machine, in a real browser.

An episode has all sites to itself, as they are seeded, and nothing that is done there stays. The score is 1 where
everything holds that the task asks for, when the agent stops or has no actions left, and 0 otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random

from ..errors import EpisodeOver, UnknownSplit, UnknownTask
from ..options import read_options
from ..protocol import Env, EnvSpec, Json, Observation, Runs, Status, Step
from ..web.actions import Action, Drag, Malformed, Stop, Type, parse
from ..web.browser import Surfer
from ..web.labels import split_label
from ..web.session import Scene
from ..web.texts import MALFORMED, BrowserTexts
from ..web.tree import LINE_TEXTS, TreeWindow
from .catalog import HOSTS, SITES, list_drawn, list_tasks, list_words
from .checks import format_truth
from .expert import walk_path
from .hosting import HEADER, Hosting, SiteWorld
from .options import WebsitesOptions
from .tasks import DRAWN, PARTS, SiteTask
from .texts import ENDED, FORMS, MISTAKEN, OPENING, PROMPT, REMINDER

__all__ = ["SPEC", "Websites", "create"]

SPEC = EnvSpec(
    name="websites",
    version="1",
    summary="tasks on sites served on this machine: a shop and its desk, a forum, a wiki, a tracker of projects",
    splits=("train", "test", *PARTS, *DRAWN),
    prompt=PROMPT,
    # a thread of its own only waits for the browser
    runs=Runs.THREAD,
)

_WINDOW = TreeWindow(width=1280, height=720)
# The only state of this module: one server is enough for every instance.
_HOSTING = Hosting()


def create(options: Mapping[str, Json]) -> Websites:
    return Websites(options)


class _Seat:
    """A place at the server, with a browser that knows the way there."""

    def __init__(self) -> None:
        self.surfer = Surfer(HOSTS, _HOSTING.enter())
        self.world = SiteWorld(SITES)
        self._secret = ""

    def begin(self, task: SiteTask, seed: int, options: WebsitesOptions) -> None:
        self.end()
        self.world = SiteWorld(SITES)
        self._secret = _HOSTING.admit(self.world)
        headers = {HEADER: self._secret}
        scene = Scene(
            hosts=HOSTS,
            window=_WINDOW,
            tokens=options.observation_tokens,
            seed=seed,
            numbers_last=True,
            repeats=options.repeats,
            headers=headers,
        )
        self.surfer.begin(scene, task.start)

    def end(self) -> None:
        self.surfer.end()
        _HOSTING.dismiss(self._secret)

    def close(self) -> None:
        self.end()
        self.surfer.close()
        _HOSTING.leave()


class Websites(Env):
    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_options(WebsitesOptions, options)
        self.spec = replace(SPEC, max_turns=self._options.max_steps)
        self._seat: _Seat | None = None
        self._task: SiteTask | None = None
        """Of the episode under way."""
        self._left = 0

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        if split not in self.spec.splits:
            raise UnknownSplit(f"websites has no split '{split[:40]}', only {', '.join(self.spec.splits)}")
        tasks = list_drawn() if split in DRAWN else list_tasks()
        return tuple(
            task.id
            for task in tasks.values()
            if task.held_out == (split not in ("train", "train_drawn"))
            and split in ("train", "test", *DRAWN, task.template.site)
            and set(task.template.needs) <= set(self._options.sites)
            and (not self._options.templates or task.id.rpartition("/")[0] in self._options.templates)
        )

    def difficulty(self, task: str) -> str:
        return _find(task).template.site

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        """Begin an episode; the seed only feeds the random numbers of scripts on pages."""
        found = _find(task)
        self._task, self._left = None, 0
        if self._seat is None:
            self._seat = _Seat()
        self._seat.begin(found, seed, self._options)
        self._task, self._left = found, self._options.max_steps
        form = REMINDER if self._options.remind else OPENING
        return self._observe(self._seat.surfer, form.format(intent=found.intent, page=self._seat.surfer.see()))

    def _observe(self, surfer: Surfer, text: str) -> Observation:
        return Observation(text=text, picture=surfer.picture() if self._options.screenshots else None)

    def step(self, action: str) -> Step:
        task, seat = self._task, self._seat
        if task is None or seat is None:
            raise EpisodeOver("websites has no episode under way: reset it first")
        self._left -= 1
        action, label = split_label(action)
        parsed = parse(action)
        if isinstance(parsed, Stop):
            return self._finish(task, seat, parsed.answer, stopped=True)
        there = seat.surfer.node(label.number) if label else None
        if label and there and not label.fits(there):
            text, status = MISTAKEN.format(number=label.number, is_there=there), Status.INVALID
        else:
            text, status = _perform(seat.surfer, parsed)
        if not self._left:
            return self._finish(task, seat, "", stopped=False, status=status)
        if self._options.remind:
            text = REMINDER.format(intent=task.intent, page=text)
        return Step(observation=self._observe(seat.surfer, text), status=status)

    def _finish(self, task: SiteTask, seat: _Seat, answer: str, *, stopped: bool, status: Status = Status.OK) -> Step:
        """End the episode, however it came to its end, and score what holds."""
        self._task = None
        success = task.done(answer, seat.surfer.visit.tab.leaf.url, seat.world.outcome())
        seat.end()
        return Step(
            observation=Observation(text=ENDED),
            reward=float(success),
            terminated=stopped,
            truncated=not stopped,
            status=status,
            info={"success": success},
        )

    def end(self) -> None:
        self._task = None
        if self._seat is not None:
            self._seat.end()

    def close(self) -> None:
        self._task = None
        seat, self._seat = self._seat, None
        if seat is not None:
            seat.close()

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        """The actions of the path, after playing them; None where the pages are not as the path says."""
        first, actions = self.reset(task, seed), []
        seat, found = self._seat, _find(task)
        assert seat is not None

        def act(action: str) -> Step:
            actions.append(action)
            return self.step(action)

        before = SiteWorld(SITES).outcome().before
        try:
            walk_path(found.path(before), first.text, lambda: seat.surfer.seen, act)
        except LookupError:
            self._task = None
            return None
        truth = found.truth(before)
        last = act("stop" if truth is None else f"stop [{format_truth(truth)}]")
        return tuple(actions) if last.reward == 1.0 else None

    def noise_action(self, rng: Random) -> str | None:
        if self._task is None or self._seat is None:
            return None
        numbers = [number for number, _ in self._seat.surfer.seen]
        return rng.choice(("scroll [down]", "go_back", *(f"hover [{number}]" for number in numbers)))

    def corpus(self) -> Iterator[str]:
        """The prompt, and every word of the tasks, of what experts do, and of the sites' data and templates."""
        yield PROMPT
        yield " ".join(LINE_TEXTS)
        yield f"{OPENING} Page: Tab 0 (here): Address:"
        yield from (ENDED, BrowserTexts.NO_ELEMENT, BrowserTexts.NOT_SCROLLED, BrowserTexts.NOT_TYPED)
        yield from (text.format(forms=FORMS) for text in MALFORMED.values())
        yield " ".join(f"[{number}]" for number in range(1, 200))
        yield from list_words(set(self._options.sites))


def _find(task: str) -> SiteTask:
    found = list_tasks().get(task) or list_drawn().get(task)
    if found is None:
        raise UnknownTask(f"websites has no task '{task[:60]}'")
    return found


def _perform(surfer: Surfer, parsed: Action | Malformed) -> tuple[str, Status]:
    if isinstance(parsed, Malformed | Drag):
        fault = parsed if isinstance(parsed, Malformed) else Malformed.UNKNOWN
        return MALFORMED[fault].format(forms=FORMS), Status.INVALID
    if isinstance(parsed, Type) and parsed.enter is None:
        parsed = replace(parsed, enter=True)
    assert not isinstance(parsed, Stop)
    reply = surfer.perform(parsed)
    return "\n".join(filter(None, (reply.text, surfer.see()))), reply.status
