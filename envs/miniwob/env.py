"""MiniWoB++: small tasks on single web pages, in a real browser.

An episode is a page with a number that seeds its randomness. The page's clock stands still except for half a second
with each action, so that what moves by itself moves the same each time. The score is what the page gives, however long
it took: from -1, wrong, to 1, right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random

from ..errors import EpisodeOver
from ..options import read_options
from ..protocol import Env, EnvSpec, Json, Observation, Runs, Status, Step
from ..web.actions import Action, Click, Drag, Hover, Malformed, Press, Scroll, Select, Type, Wait, parse
from ..web.browser import Surfer
from ..web.session import Scene
from ..web.texts import MALFORMED
from ..web.tree import TreeWindow
from .options import MiniWobOptions
from .pages import NUMBERS, find_html, find_page, list_page_tasks, load_pages, load_words
from .solve import SOLVERS, PageView
from .texts import FORMS, OPENING, PROMPT, Ends

__all__ = ["SPEC", "MiniWob", "create"]

SPEC = EnvSpec(
    name="miniwob",
    version="1",
    summary="small tasks on single web pages: forms, menus, calendars, mail",
    splits=tuple(NUMBERS),
    score_range=(-1.0, 1.0),
    prompt=PROMPT,
    # a thread of its own only waits for the browser
    runs=Runs.THREAD,
)

_HOST = "miniwob.test"
_TICK_MS = 500
_WINDOW = TreeWindow(
    width=400,
    height=400,
    # the task, told once; the display of the score; the cover before the start; the mark of where was clicked
    strip=frozenset(("query", "reward-display", "sync-task-cover", "click-canvas")),
)
_OFFERED = (Click, Hover, Drag, Type, Select, Press, Scroll, Wait)
_START = """() => {
  Math.seedrandom("NUMBER");
  core.EPISODE_MAX_TIME = 1e9;
  core.startEpisodeReal();
}"""
_TASK = """() => {
  const said = core.getUtterance();
  return typeof said === "string" ? said : said.utterance;
}"""
_SCORE = "() => typeof WOB_DONE_GLOBAL === 'undefined' ? [false, 0] : [WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL]"


def create(options: Mapping[str, Json]) -> MiniWob:
    return MiniWob(options)


class MiniWob(Env):
    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_options(MiniWobOptions, options)
        self._pages = self._options.pages or tuple(load_pages())
        self.spec = replace(SPEC, max_turns=self._options.max_steps)
        self._window = replace(_WINDOW, positions=self._options.positions)
        self._surfer = Surfer()
        self._task = ""
        self._left = 0
        """Actions that the episode under way may still take."""

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        self.check_split(split)
        return list_page_tasks(split, self._pages)

    def difficulty(self, task: str) -> str:
        return find_page(task)[0]

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        """The seed changes nothing: the task's number seeds the randomness."""
        page, number = find_page(task)
        self._left = 0
        scene = Scene(
            folder=(_HOST, find_html()),
            window=self._window,
            tokens=self._options.observation_tokens,
            seed=number,
            tick_ms=_TICK_MS,
            numbers_last=True,
            headed=False,
        )
        self._surfer.begin(scene, f"http://{_HOST}/miniwob/{page}.html")
        self._surfer.ask(_START.replace("NUMBER", str(number)))
        self._surfer.settle()
        self._task = " ".join(str(self._surfer.ask(_TASK)).split())
        self._left = self._options.max_steps
        return self._observe(OPENING.format(task=self._task, page=self._surfer.see()))

    def _observe(self, text: str) -> Observation:
        return Observation(text=text, picture=self._surfer.picture() if self._options.screenshots else None)

    def step(self, action: str) -> Step:
        if not self._left:
            raise EpisodeOver("miniwob has no episode under way: reset it first")
        self._left -= 1
        parsed = parse(action)
        if not isinstance(parsed, _OFFERED):
            fault = parsed if isinstance(parsed, Malformed) else Malformed.UNKNOWN
            text = MALFORMED[fault].format(forms=FORMS)
            return self._finish_step(self._observe(text), 0.0, over=False, status=Status.INVALID)
        return self._perform(parsed)

    def _perform(self, action: Action) -> Step:
        reply = self._surfer.perform(action)
        over, score = self._surfer.ask(_SCORE)
        if over:
            self._surfer.end()
            text = Ends.RIGHT if score >= 1 else Ends.PARTLY if score > 0 else Ends.WRONG
        else:
            text = "\n".join(filter(None, (reply.text, self._surfer.see())))
        score = max(-1.0, min(1.0, float(score))) if over else 0.0
        return self._finish_step(self._observe(text), score, over=over, status=reply.status)

    def _finish_step(self, observation: Observation, score: float, *, over: bool, status: Status) -> Step:
        truncated = not over and not self._left
        if over:
            self._left = 0
        info = {"success": score == 1.0}
        return Step(
            observation=observation, reward=score, terminated=over, truncated=truncated, status=status, info=info
        )

    def end(self) -> None:
        self._left = 0
        self._surfer.end()

    def close(self) -> None:
        self._left = 0
        self._surfer.close()

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        """The solution, after it was played; None where the page does not accept it."""
        page, _ = find_page(task)
        if page not in SOLVERS:
            return None
        self.reset(task, seed)
        solver, actions = SOLVERS[page](self._task, self._look()), []
        try:
            action = next(solver)
            while self._left:
                actions.append(action)
                step = self.step(action)
                if step.ended:
                    return tuple(actions) if step.reward == 1.0 else None
                action = solver.send(self._look())
        except (StopIteration, LookupError, ValueError):  # the page is not as the solver expects
            self._left = 0
        return None

    def _look(self) -> PageView:
        return PageView(self._surfer.seen)

    def noise_action(self, rng: Random) -> str | None:
        """A random use of the mouse on something in view."""
        if not self._left:
            return None
        number, _ = rng.choice(self._surfer.seen or ((1, None),))
        return f"{rng.choice(('click', 'click', 'hover'))} [{number}]"

    def corpus(self) -> Iterator[str]:
        """The prompt, and every word seen on the pages when they were screened."""
        yield PROMPT
        yield from (Ends.RIGHT, Ends.PARTLY, Ends.WRONG)
        yield from (text.format(forms=FORMS) for text in MALFORMED.values())
        yield " ".join(f"[{number}]" for number in range(1, 40))
        yield from (load_words().get(page, "") for page in self._pages)
