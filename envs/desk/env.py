"""Desk: serve a shop's customer by a written policy, with tools on a database.

An episode is a conversation. It ends with `done`, with a customer handed over to a human, or at its limit of steps; its
score is how the database compares with what it should be then, and whether the customer was told what they must know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from ..errors import EpisodeOver, UnknownTask
from ..options import read_options
from ..protocol import Env, EnvSpec, Json, Observation, Runs, Status, Step
from .actions import DeskCall, MalformedCall, list_tools, parse_call, write_call
from .episode import Episode
from .expert import advise, make_plan
from .options import DeskOptions
from .stock import CITIES, FIRST_NAMES, PRODUCTS, STREETS, SURNAMES
from .tasks import DeskTask, list_ids, load_task
from .texts import PROMPT, TOOL_PROMPT, TOOLS

__all__ = ["SPEC", "Desk", "create"]

_HELD_OUT: Mapping[str, bool] = {"train": False, "test": True}

SPEC = EnvSpec(
    name="desk",
    version="1",
    summary="serve a shop's customers by its policy, with tools on its database",
    splits=tuple(_HELD_OUT),
    prompt="\n".join([PROMPT, *(f"{name}({', '.join(needs)}): {what}" for name, (what, needs) in TOOLS.items())]),
    max_turns=20,
    runs=Runs.POOL,
    tools=list_tools(),
    tool_prompt=TOOL_PROMPT,
)


def create(options: Mapping[str, Json]) -> Desk:
    """Make an instance from options; the registry's entry point."""
    return Desk(read_options(DeskOptions, options))


class Desk(Env):
    spec = SPEC

    def __init__(self, options: DeskOptions | None = None) -> None:
        self._options = options or DeskOptions()
        self._episode: Episode | None = None
        self._num_steps = 0

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        self.check_split(split)
        return list_ids(_HELD_OUT[split], self._options.levels)

    def difficulty(self, task: str) -> str:
        return self._find(task).level

    def _find(self, task: str) -> DeskTask:
        found = load_task(task)
        if found.level not in self._options.levels:
            raise UnknownTask(f"desk has no task '{task[:60]}' at the levels {', '.join(self._options.levels)}")
        return found

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        self._episode, self._num_steps = Episode(self._find(task), seed), 0
        return Observation(text=f"The customer says: {self._episode.customer.greet()}")

    def step(self, action: str) -> Step:
        episode = self._episode
        if episode is None:
            raise EpisodeOver("desk has no episode under way: reset it first")
        self._num_steps += 1
        text, status = _act(episode, action)
        cut = self._num_steps >= self._options.max_steps and not episode.is_over
        ended = episode.is_over or cut
        if ended:
            self._episode = None
        return Step(
            observation=Observation(text=text),
            reward=episode.score() if ended else 0.0,
            terminated=episode.is_over,
            truncated=cut,
            status=status,
            info={} if ended else {"state": episode.name_state()},
        )

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...]:
        return tuple(step.action for step in make_plan(self._find(task), seed))

    def advice(self) -> str | None:
        return None if self._episode is None else advise(self._episode).action

    def noise_action(self, rng: Random) -> str | None:
        """A lookup or a pointless phrase; never a change, which could not be undone."""
        if self._episode is None:
            return None
        orders = [order for order, _ in self._episode.task.database.select("orders")]
        calls = (
            DeskCall("get_order", {"order_id": rng.choice(orders)}),
            DeskCall("get_product", {"product": rng.choice(tuple(PRODUCTS))}),
            DeskCall("say", {"text": "One moment, I am looking it up."}),
        )
        return write_call(rng.choice(calls))

    def corpus(self) -> Iterator[str]:
        """The guide, every training conversation as the expert holds it, and the bare words of all others."""
        yield from (SPEC.prompt, SPEC.tool_prompt)
        yield from (" ".join(each) for each in (FIRST_NAMES, STREETS, CITIES, *SURNAMES.values(), PRODUCTS))
        yield from (" ".join(variants) for _, variants in PRODUCTS.values())
        for task in self.tasks("train"):
            episode = Episode(load_task(task), 0)
            yield episode.customer.greet()
            while not episode.is_over:
                step = advise(episode)
                yield step.action
                yield episode.act(step.call)[0]


def _act(episode: Episode, action: str) -> tuple[str, Status]:
    try:
        call = parse_call(action)
    except MalformedCall as malformed:
        return str(malformed), Status.INVALID
    return episode.act(call)
