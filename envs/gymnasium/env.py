"""Gymnasium: any environment registered there whose actions and observations can be put into words.

A task is a seed of the environment's own. The score is the return, scaled to 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from random import Random
from typing import Any

import gymnasium

from ..errors import BadOption, EpisodeOver, NotInstalled, UnknownTask
from ..options import read_options
from ..pictures import encode_png
from ..protocol import Env, EnvSpec, Json, Observation, Status, Step, parse_numbered
from .actions import name_actions
from .describe import Describer, find_describer
from .known import KNOWN, Known
from .options import GymnasiumOptions
from .plan import is_certain, value_actions
from .spaces import MASK, is_exact, is_tellable, put_in_words, to_plain

__all__ = ["SPEC", "Gymnasium", "create"]

FIRST_SEED: Mapping[str, int] = {"train": 0, "test": 1_000_000}

SPEC = EnvSpec(
    name="gymnasium",
    version="1",
    summary="any Gymnasium environment that can be told in words",
    splits=tuple(FIRST_SEED),
)

_LIMIT = 100
"""Actions in one episode where neither the environment nor the user has set a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solved:
    actions: tuple[str, ...]
    earned: float
    arrives: bool


def create(options: Mapping[str, Json]) -> Gymnasium:
    return Gymnasium(options)


class Gymnasium(Env):
    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_options(GymnasiumOptions, options)
        self._world, self._known, self._describer = _make_world(self._options)
        named = self._options.actions or (self._known.actions if self._known else ())
        meanings = getattr(self._world.unwrapped, "get_action_meanings", lambda: ())()
        if self._describer and self._describer.actions:
            meanings = self._describer.actions
        self._actions = name_actions(self._world.action_space, named, meanings, self._options.id)
        self._words = self._actions.words
        self._limit = min(filter(None, (self._options.max_steps, _own_limit(self._world))), default=_LIMIT)
        self._worst, self._best = _returns(self._options, self._known, self._describer)
        self._table: Any = getattr(self._world.unwrapped, "P", None) if self._known else None
        """All that can happen, where the environment has it written down."""
        self._certain = self._table is None or is_certain(self._table)
        self._can_always_win = self._table is not None and self._certain and self._is_to_arrive
        """Whether neither randomness nor what was done before keeps the best plan from a score of 1."""
        self.spec = replace(SPEC, prompt=self._prompt(), max_turns=self._limit)
        self._worth: list[list[float]] | None = None
        """Of each action in each state, once it was asked for."""
        self._par = 0.0
        """The return that scores 1 in the episode under way."""
        self._left, self._earned = 0, 0.0
        self._seen: Any = None
        self._mask: Any = None

    @property
    def _is_to_arrive(self) -> bool:
        """Whether only arriving counts, regardless of the time it takes."""
        return self._known is not None and self._known.returns[1] is not None and not self._options.returns

    def _prompt(self) -> str:
        slips = "" if self._certain else " You slip at times, and another move is made than the one you chose."
        return f"{self._guide()}{slips}\nEach turn, give {self._actions.how}."

    def _guide(self) -> str:
        if self._known is None:
            described = self._describer.guide if self._describer else ""
            return described or f"You act in {self._options.id.rpartition(':')[2]}."
        rows = getattr(self._world.unwrapped, "desc", ())
        return self._known.guide.format(map="\n".join(b"".join(row).decode() for row in rows))

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        self.check_split(split)
        first = FIRST_SEED[split]
        return tuple(f"seed-{seed}" for seed in range(first, first + self._options.seeds))

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        """The seed of the task decides everything."""
        number = _seed(task)
        self._left = 0
        self._par = self._best if self._best is not None else self._solve(number).earned
        self._begin(number)
        return self._observe(self._describe())

    def _begin(self, number: int) -> None:
        if self._known and (kwargs := self._known.prepare(self._options.kwargs, number)) != self._options.kwargs:
            self._world = _make(self._options.id, {**_drawn(self._options), **kwargs})
            self._table, self._worth = self._world.unwrapped.P, None
        self._seen, info = self._world.reset(seed=number)
        self._mask = self._find_mask(info)
        self._left, self._earned = self._limit, 0.0

    def _find_mask(self, info: Mapping[str, Any]) -> Any:
        """Which actions are possible: told in `info`, as a part of the observation, or by a method."""
        if MASK in info:
            return info[MASK]
        if isinstance(self._seen, Mapping) and MASK in self._seen:
            return self._seen[MASK]
        asked = getattr(self._world.unwrapped, "action_masks", None)
        return asked() if callable(asked) else None

    def step(self, action: str) -> Step:
        if not self._left:
            raise EpisodeOver("gymnasium has no episode under way: reset it first")
        chosen = self._actions.read(action)
        if chosen is None:
            self._left -= 1
            expected = self._actions.how if self._words else "a text that is allowed"
            return self._answer(f"That is not an action: give {expected}.", Status.INVALID, over=False)
        over, ended = self._act(chosen)
        text = f"{self._describe()}\nThe episode is over." if ended else self._describe()
        return self._answer(text, Status.OK, over=over)

    def _act(self, chosen: Any) -> tuple[bool, bool]:
        """Act; return whether the task has ended, and whether the episode has."""
        self._seen, reward, terminated, truncated, info = self._world.step(chosen)
        self._mask = self._find_mask(info)
        self._earned += float(reward)
        self._left = 0 if terminated or truncated else self._left - 1
        return bool(terminated), not self._left

    def _answer(self, text: str, status: Status, *, over: bool) -> Step:
        space = self._world.observation_space
        state = {"state": put_in_words(space, self._seen)} if is_exact(space) else {}
        return Step(
            observation=self._observe(text),
            reward=self._score(over),
            terminated=over,
            truncated=not over and not self._left,
            status=status,
            info={"return": self._earned, **state},
        )

    def _score(self, over: bool) -> float:
        # where steps cost something, an agent that has not arrived may have the higher return
        if self._worst < 0 and not over:
            return 0.0
        return min(1.0, max(0.0, (self._earned - self._worst) / (max(self._par, self._worst + 1e-9) - self._worst)))

    def _describe(self) -> str:
        world = self._world
        if self._known and self._known.show:
            return self._known.show(world.unwrapped, self._seen)
        if self._describer:
            return self._describer.tell(world.unwrapped, self._seen)
        if world.render_mode == "ansi":
            return to_plain(world.render())
        return put_in_words(world.observation_space, self._seen)

    def _observe(self, text: str) -> Observation:
        listed = self._actions.listed(self._mask) if self._left else None
        return Observation(text=text, valid_actions=listed, picture=self._draw())

    def _draw(self) -> bytes | None:
        """A picture, where the environment draws one rather than a text."""
        if not self._options.screenshots or self._world.render_mode != "rgb_array":
            return None
        try:
            with redirect_stdout(StringIO()):  # what some of them draw with prints a greeting when imported
                return encode_png(self._world.render())
        except gymnasium.error.DependencyNotInstalled as error:
            raise NotInstalled(f"pictures of '{self._options.id}' need another package: {error}") from error

    def close(self) -> None:
        self._left = 0
        self._world.close()

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        """The best plan, where it is known and succeeds."""
        number = _seed(task)
        if self._table is None:
            return None
        solved = self._solve(number)
        comes_off = solved.arrives and solved.earned >= (self._best if self._best is not None else solved.earned)
        return solved.actions if comes_off else None

    def _solve(self, number: int) -> _Solved:
        """The best plan from a start, with the episode's own randomness."""
        self._begin(number)
        actions, over = [], False
        while self._left:
            actions.append(self._best_action())
            over, _ = self._act(self._actions.read(actions[-1]))
        return _Solved(actions=tuple(actions), earned=self._earned, arrives=over)

    def _best_action(self) -> str:
        worth = self._worth_now()
        return self._words[worth.index(max(worth))]

    def _worth_now(self) -> list[float]:
        if self._worth is None:
            self._worth = value_actions(self._table)
        return self._worth[int(self._seen)]

    def advice(self) -> str | None:
        return self._best_action() if self._left and self._can_always_win else None

    def noise_action(self, rng: Random) -> str | None:
        """A random possible action; none that loses, where that is known."""
        if not self._words:
            return None
        harmless = self._actions.allowed(self._mask)
        if self._left and self._can_always_win:
            harmless = tuple(word for word, worth in zip(self._words, self._worth_now(), strict=True) if worth > 0)
        return rng.choice(harmless or self._words)

    def corpus(self) -> Iterator[str]:
        """The prompt, and every state that can be listed, or else observations after some actions."""
        yield self.spec.prompt
        yield "The episode is over. That is not an action: give one of: a text that is allowed."
        if self._table is not None and self._known and self._known.show:
            yield from (self._known.show(self._world.unwrapped, state) for state in self._table)
            return
        for number, rng in ((number, Random(number)) for number in range(20)):
            self._begin(number)
            yield self._describe()
            while self._left > self._limit - 20 and (word := self.noise_action(rng)):
                yield self.step(word).observation.text
        self._left = 0


def _make_world(options: GymnasiumOptions) -> tuple[Any, Known | None, Describer | None]:
    """Make the environment and find out how it is described; unknown ones are rendered as text where possible."""
    world = _make(options.id, {**_drawn(options), **options.kwargs})
    ours = str(world.spec.entry_point).startswith("gymnasium.envs.") and world.spec.namespace is None
    known = KNOWN.get(world.spec.name) if ours and options.describe is None else None
    describer = None if known else find_describer(options.describe, world.observation_space)
    if known is None and describer is None and "ansi" in world.metadata.get("render_modes", ()):
        world.close()
        world = _make(options.id, {"render_mode": "ansi", **options.kwargs})
    elif describer is not None:
        _try_out(world, describer, options.id)
    elif known is None and not is_tellable(world.observation_space):
        raise BadOption(
            f"what is seen in '{options.id}' cannot be put in words, so give the option 'describe':"
            f" {str(world.observation_space)[:80]}"
        )
    return world, known, describer


def _try_out(world: Any, describer: Describer, name: str) -> None:
    seen, _ = world.reset(seed=0)
    try:
        describer.tell(world.unwrapped, seen)
    except (ValueError, LookupError, TypeError) as error:
        raise BadOption(f"gymnasium option 'describe' does not fit what is seen in '{name}': {error}") from error


def _own_limit(world: Any) -> int | None:
    """Actions after which the environment itself cuts an episode off, if it says so."""
    own = getattr(world.unwrapped, "max_steps", None)
    return world.spec.max_episode_steps or (own if isinstance(own, int) and own > 0 else None)


def _drawn(options: GymnasiumOptions) -> Mapping[str, Any]:
    return {"render_mode": "rgb_array"} if options.screenshots else {}


def _make(name: str, kwargs: Mapping[str, Any]) -> Any:
    try:
        return gymnasium.make(name, disable_env_checker=True, **kwargs)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise BadOption(f"gymnasium cannot make '{name[:60]}': {error}") from error


def _returns(options: GymnasiumOptions, known: Known | None, describer: Describer | None) -> tuple[float, float | None]:
    told = options.returns or (known.returns if known else describer.returns if describer else None)
    if not told:
        raise BadOption(
            f"it is not known what play can earn in '{options.id}': give the option 'returns', the return that scores 0"
            " and the one that scores 1"
        )
    return told


def _seed(task: str) -> int:
    found = parse_numbered(task)
    if found is None or found[0] != "seed":
        raise UnknownTask(f"gymnasium has no task '{task[:60]}': expected one such as seed-17")
    return found[1]
