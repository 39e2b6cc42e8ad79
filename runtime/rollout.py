"""One episode is one coroutine: open -> (render what is new -> sample -> read -> step)* -> close.

Enters: a task, an environment, an agent format, a sampler, budgets. Leaves: an Episode. Nothing is rendered twice and
no sampled token is ever re-tokenised. No barrier stands between turns: a slot that gets free takes the next episode at
once, and the order in which episodes start is fixed by their place in the step, not by which one ended first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TypeVar

import numpy as np

from ..dsl.recipe import OnInvalid
from ..envs.errors import EnvFault, FaultKind
from ..envs.protocol import Score, Session, Status, Step, score_of
from .agents.formats import AgentFormat
from .asking import Gates, Phases, World, asked, opened, persistently, sound
from .episode import Ending, Episode, Group, Message, Segment, Task, Turn
from .ports import Draw, Sampled, Sampler, SampleRequest
from .rendering import Chat
from .seeds import derive

__all__ = ["Budgets", "Order", "Player", "in_slots", "play_groups"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """What an episode may use up."""

    horizon: int
    tokens_per_turn: int
    context_tokens: int
    invalid_limit: int | None = None
    on_invalid: OnInvalid = OnInvalid.TELL
    observation_tokens: int | None = None


@dataclass(slots=True)
class _Transcript:
    """The tokens of the segment under way. Only ever appended to."""

    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def given(self, ids: Sequence[int]) -> None:
        self.ids += ids
        self.sampled += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.versions += [-1] * len(ids)

    def drawn(self, reply: Sampled) -> tuple[int, int]:
        start = len(self.ids)
        self.ids += reply.ids
        self.sampled += [True] * len(reply.ids)
        self.logprobs += reply.logprobs
        self.versions += reply.versions
        return start, len(self.ids)

    def segment(self) -> Segment:
        return Segment(
            ids=np.asarray(self.ids, np.int32),
            sampled=np.asarray(self.sampled, np.bool_),
            logprobs=np.asarray(self.logprobs, np.float32),
            versions=np.asarray(self.versions, np.int32),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """An agent at play: a model's replies, a format, budgets. Makes one Episode of each task it is given."""

    sampler: Sampler
    chat: Chat
    format: AgentFormat
    prompt: str | None
    """A system prompt of the recipe's own."""
    draw: Draw
    phases: Phases
    gates: Gates
    clock: Callable[[], float]

    async def attempt(self, world: World, task: Task, index: int, budgets: Budgets, seed: int) -> Episode:
        """Plays, again after a fault as often as allowed; a fault that stays is the episode's ending."""

        async def once() -> Episode:
            async with opened(world, task, self.phases, self.gates) as session:
                try:
                    async with asyncio.timeout(self.phases.episode_timeout_s):
                        return await self._play(world, session, task, index, budgets, seed)
                except TimeoutError:
                    what = f"the episode of task '{task.id}' in {world.name} to end"
                    raise EnvFault(
                        f"waited {self.phases.episode_timeout_s:g} s for {what}", kind=FaultKind.DEADLINE
                    ) from None

        return await persistently(once, task, index, budgets.horizon, self.phases.retries, self.clock)

    async def _play(
        self, world: World, session: Session, task: Task, index: int, budgets: Budgets, seed: int
    ) -> Episode:
        first = self.chat.cut(session.first.text, budgets.observation_tokens)
        opening = self.format.opening(world.spec.prompt, first, self.prompt)
        tape = _Transcript()
        tape.given(self.chat.begin(opening))
        turns: list[Turn] = []
        ending = Ending.HORIZON
        state, invalid_in_a_row = _state("", session.first.text), 0
        while len(turns) < budgets.horizon:
            room = budgets.context_tokens - len(tape.ids)
            if room < 1:
                ending = Ending.BUDGET
                break
            reply = await self.sampler.sample(
                SampleRequest(
                    prompt=tuple(tape.ids),
                    draw=self.draw,
                    max_tokens=min(budgets.tokens_per_turn, room),
                    seed=derive(seed, "turn", len(turns)),
                )
            )
            start, end = tape.drawn(reply)
            text = self.chat.decode(reply.ids)
            reading = self.format.read(text)
            if reading.action is None:
                step, messages = None, self.format.correction(reading.problem)
            else:
                step = await self._step(world, session, reading.action)
                shown = self.chat.cut(step.observation.text, budgets.observation_tokens)
                messages = self.format.observation(shown)
            invalid = step is None or step.status is Status.INVALID
            invalid_in_a_row = invalid_in_a_row + 1 if invalid else 0
            turns.append(
                Turn(
                    segment=0,
                    start=start,
                    end=end,
                    reply=text,
                    action=None if invalid else reading.action,
                    observation="\n".join(message.content for message in messages),
                    reward=0.0 if step is None else step.reward,
                    state=state,
                )
            )
            if step is not None:
                state = _state(str(step.info.get("state", "")), step.observation.text)
            if step is not None and step.ended:
                ending = Ending.DONE if step.terminated else Ending.HORIZON
                break
            if _gives_up(invalid, invalid_in_a_row, budgets):
                ending = Ending.INVALID
                break
            if len(turns) == budgets.horizon:
                break
            follow = self._follow(tape, messages)
            # a turn that has no room for a reply is not begun
            if len(tape.ids) + len(follow) >= budgets.context_tokens:
                ending = Ending.BUDGET
                break
            tape.given(follow)
        score = _score(world.spec.score, turns)
        return Episode(
            task=task,
            index=index,
            segments=(tape.segment(),),
            turns=tuple(turns),
            ending=ending,
            horizon=budgets.horizon,
            score=score,
            success=score >= world.success_at,
            opening=opening,
        )

    async def _step(self, world: World, session: Session, action: str) -> Step:
        async with self.gates.step:
            what = f"{world.name} to answer '{action[:60]}'"
            step = await asked(session.step(action), self.phases.step_timeout_s, what)
        return sound(step, world.name)

    def _follow(self, tape: _Transcript, messages: Sequence[Message]) -> list[int]:
        """What is given before the next reply; an end token that the model did not draw is given, never learnt."""
        closed = tape.ids[-1] == self.chat.end_of_reply
        return [*([] if closed else [self.chat.end_of_reply]), *self.chat.follow(messages)]


def _state(told: str, shown: str) -> str:
    """Names where the episode stands: as the environment does, or, where it has no names, by what it shows there."""
    return told or f"shown-{sha256(shown.encode(errors='replace')).hexdigest()[:16]}"


def _gives_up(invalid: bool, in_a_row: int, budgets: Budgets) -> bool:
    if invalid and budgets.on_invalid is OnInvalid.END:
        return True
    return budgets.invalid_limit is not None and in_a_row >= budgets.invalid_limit


def _score(kind: Score, turns: Sequence[Turn]) -> float:
    # a reply without an action reached no environment: it has no reward that could overwrite an earlier score
    return score_of(kind, [turn.reward for turn in turns if turn.action is not None])


# --- groups --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A group to be played."""

    task: Task
    size: int
    budgets: Budgets
    seed: int


async def play_groups(
    player: Player,
    worlds: Mapping[str, World],
    orders: Sequence[Order],
    slots: int,
    seen: Callable[[Episode], None] = lambda episode: None,
) -> list[Group]:
    """All episodes of all groups, at most `slots` at the same time; groups come back in the order asked for."""

    async def play(order: Order, index: int) -> Episode:
        world, seed = worlds[order.task.environment], derive(order.seed, "episode", index)
        episode = await player.attempt(world, order.task, index, order.budgets, seed)
        seen(episode)
        return episode

    played = iter(
        await in_slots([partial(play, order, index) for order in orders for index in range(order.size)], slots)
    )
    return [Group(task=order.task, episodes=tuple(next(played) for _ in range(order.size))) for order in orders]


async def in_slots(jobs: Sequence[Callable[[], Awaitable[T]]], slots: int) -> list[T]:
    """What the jobs give, in their order; they start in it too, as slots get free. The first trouble ends them all."""
    results: dict[int, T] = {}
    upcoming = iter(enumerate(jobs))

    async def slot() -> None:
        for at, job in upcoming:
            results[at] = await job()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(slots, len(jobs))):
                group.create_task(slot())
    except BaseExceptionGroup as troubles:
        raise troubles.exceptions[0] from None
    return [results[at] for at in range(len(jobs))]
