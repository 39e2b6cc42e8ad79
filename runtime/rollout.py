"""One episode is one coroutine: open -> (render what is new -> sample -> read -> step)* -> close.

Enters: a task, an environment, an agent format, a sampler, budgets. Leaves: an Episode. Nothing is rendered twice and
no sampled token is ever re-tokenised. No barrier stands between turns: a slot that gets free takes the next episode at
once, and the order in which episodes start is fixed by their place in the step, not by which one ended first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from ..dsl.recipe import OnInvalid
from ..envs.errors import EnvFault, FaultKind
from ..envs.protocol import EnvClient, EnvSpec, Score, Session, Status, Step, score_of
from .agents.formats import AgentFormat
from .episode import Ending, Episode, Group, Segment, Task, Turn
from .ports import Draw, Sampled, Sampler, SampleRequest
from .rendering import Chat, Message
from .seeds import derive

__all__ = ["Budgets", "Order", "Phases", "Player", "World", "play_groups"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """How long to wait and how often to try again."""

    reset_timeout_s: float = 60.0
    step_timeout_s: float = 30.0
    episode_timeout_s: float = 1800.0
    retries: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """An environment, ready to play, with what a recipe says about it."""

    name: str
    client: EnvClient
    spec: EnvSpec
    success_at: float = 1.0
    prompt: str | None = None
    """A system prompt of the recipe's own."""


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
    draw: Draw
    phases: Phases
    clock: Callable[[], float]

    async def attempt(self, world: World, task: Task, index: int, budgets: Budgets, seed: int) -> Episode:
        """Plays, again after a fault as often as allowed; a fault that stays is the episode's ending."""
        started = self.clock()
        for retry in range(self.phases.retries + 1):
            try:
                episode = await self._once(world, task, index, budgets, seed)
            except EnvFault as fault:
                last = fault
            else:
                return replace(episode, retries=retry, seconds=self.clock() - started)
        return _lost(task, index, budgets, f"{last.kind}: {last}", self.phases.retries, self.clock() - started)

    async def _once(self, world: World, task: Task, index: int, budgets: Budgets, seed: int) -> Episode:
        session = await _within(
            world.client.open(task.id, task.seed),
            self.phases.reset_timeout_s,
            f"{world.name} to start task '{task.id}'",
        )
        try:
            return await _within(
                self._play(world, session, task, index, budgets, seed),
                self.phases.episode_timeout_s,
                f"{world.name} to finish task '{task.id}'",
            )
        finally:
            await session.close()

    async def _play(
        self, world: World, session: Session, task: Task, index: int, budgets: Budgets, seed: int
    ) -> Episode:
        tape = _Transcript()
        tape.given(self.chat.begin(self.format.opening(world.spec.prompt, session.first.text, world.prompt)))
        turns: list[Turn] = []
        ending = Ending.HORIZON
        invalid_in_a_row = 0
        while len(turns) < budgets.horizon:
            # the reply's end token must fit too, so that a cut reply can be closed and the next message follow it
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
                step = await _within(
                    session.step(reading.action), self.phases.step_timeout_s, f"{world.name} to answer '{text[:60]}'"
                )
                messages = self.format.observation(step.observation.text)
            invalid = step is None or step.status is Status.INVALID
            invalid_in_a_row = invalid_in_a_row + 1 if invalid else 0
            turns.append(_turn(start, end, text, reading.action, step, messages))
            if step is not None and step.ended:
                ending = Ending.DONE if step.terminated else Ending.HORIZON
                break
            if _gives_up(invalid, invalid_in_a_row, budgets):
                ending = Ending.INVALID
                break
            if len(turns) == budgets.horizon:
                break
            follow = self._follow(tape, messages, budgets)
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
        )

    def _follow(self, tape: _Transcript, messages: Sequence[Message], budgets: Budgets) -> list[int]:
        """What is given before the next reply; an end token that the model did not draw is given, never learnt."""
        closed = tape.ids[-1] == self.chat.end_of_reply
        return ([] if closed else [self.chat.end_of_reply]) + self.chat.follow(messages)


def _turn(start: int, end: int, text: str, action: str | None, step: Step | None, messages: Sequence[Message]) -> Turn:
    return Turn(
        segment=0,
        start=start,
        end=end,
        reply=text,
        action=None if step is None or step.status is Status.INVALID else action,
        observation="\n".join(message.content for message in messages),
        reward=0.0 if step is None else step.reward,
        state=str(step.info.get("state", "")) if step is not None else "",
    )


def _gives_up(invalid: bool, in_a_row: int, budgets: Budgets) -> bool:
    if invalid and budgets.on_invalid is OnInvalid.END:
        return True
    return budgets.invalid_limit is not None and in_a_row >= budgets.invalid_limit


def _score(kind: Score, turns: Sequence[Turn]) -> float:
    # a reply without an action reached no environment: it has no reward that could overwrite an earlier score
    return score_of(kind, [turn.reward for turn in turns if turn.action is not None])


def _lost(task: Task, index: int, budgets: Budgets, fault: str, retries: int, seconds: float) -> Episode:
    return Episode(
        task=task,
        index=index,
        segments=(),
        turns=(),
        ending=Ending.ENV_FAULT,
        horizon=budgets.horizon,
        score=0.0,
        success=False,
        fault=fault,
        retries=retries,
        seconds=seconds,
    )


async def _within(awaitable: Awaitable[T], seconds: float, what: str) -> T:
    """Every wait has an end, and says what it waited for."""
    try:
        async with asyncio.timeout(seconds):
            return await awaitable
    except TimeoutError:
        raise EnvFault(f"waited {seconds:g} s for {what}", kind=FaultKind.DEADLINE) from None


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
    jobs = [(order, index) for order in orders for index in range(order.size)]
    results: list[Episode | None] = [None] * len(jobs)
    upcoming = iter(enumerate(jobs))

    async def slot() -> None:
        for at, (order, index) in upcoming:
            world = worlds[order.task.environment]
            seed = derive(order.seed, "episode", index)
            episode = await player.attempt(world, order.task, index, order.budgets, seed)
            results[at] = episode
            seen(episode)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(slots, len(jobs))):
            group.create_task(slot())
    episodes = iter([episode for episode in results if episode is not None])
    return [Group(task=order.task, episodes=tuple(next(episodes) for _ in range(order.size))) for order in orders]
