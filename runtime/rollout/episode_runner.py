"""An episode under way: what the agent sees, says and does, attempt after attempt.

Enters: a player and its settings, sessions. Leaves: an Episode. What the agent is shown is what it was shown, token by
token, until its memory is cut: then a new view begins, with the opening, a word about what is left out, and the turns
that are kept, in the very tokens in which they were said. Plans, lessons and summaries are replies like any other:
sampled, counted and learnt, and not turns that the horizon knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING

from ...dsl.model.recipe import MemoryKind, OnInvalid
from ...envs.protocol import Observation, Session, Status, Step, score_of
from ..agents import prompts as wording
from ..agents.chat import readable
from ..agents.formats import without_thoughts
from ..agents.messages import Message, ParsedReply, refuse
from ..agents.prompts import with_paragraphs
from ..protocols import FinishReason, SampleRequest
from ..seeds import derive
from .constrained import sample_valid_action
from .env_calls import ConnectedEnv, validated, with_deadline
from .episode import (
    Ending,
    Episode,
    Purpose,
    Task,
    Turn,
)
from .token_buffer import TokenBuffer

if TYPE_CHECKING:
    from .groups import EpisodeLimits, Player

__all__ = ["EpisodeRunner"]


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """A reply in view, and what stands around it."""

    asked: str
    """What was said before it."""
    reply: tuple[int, ...]
    purpose: Purpose
    whole: bool
    """It was ended, not cut off."""
    follow: tuple[int, ...] = ()
    """Tokens from it to the next reply."""


@dataclass(slots=True, kw_only=True)
class EpisodeRunner:
    """One episode."""

    player: Player
    env: ConnectedEnv
    task: Task
    index: int
    limits: EpisodeLimits
    seed: int
    examples: str = ""
    """Told with the guide."""

    turns: list[Turn] = field(default_factory=list)
    _buffer: TokenBuffer = field(default_factory=TokenBuffer)
    _opening: tuple[Message, ...] = ()
    _lessons: list[str] = field(default_factory=list)
    _ending: Ending = Ending.HORIZON
    # of the attempt under way
    _before: int = 0
    """Turns before it."""
    _rewards: list[float] = field(default_factory=list)
    """Of its steps; a reply without an action has none that could overwrite an earlier score."""
    _first: str = ""
    """What was shown at its start."""
    _limit: int = 0
    """Tokens of a view while it acts; what is left is for the lesson or the summary at its end."""
    _view: list[_Exchange] = field(default_factory=list)
    _told: tuple[Message, ...] = ()
    """What is to be said before the next reply, and has not been yet."""
    _asked: str = ""
    """What was said last."""
    _state: str = ""
    _valid: tuple[str, ...] | None = None
    """Actions that the environment listed last, where it does."""
    _plan: str = ""
    _since_plan: int = 0
    _summary: str = ""
    _invalid_in_a_row: int = 0

    # --- attempts

    async def attempt(self, session: Session) -> None:
        """Until the environment, the horizon or a budget ends it."""
        self._begin(session.first)
        self._ending = await self._go_on(session)

    async def again(self) -> bool:
        """Whether there is another attempt; what is to be learnt from this one is asked for first."""
        reflection = self.player.reflection
        if reflection is None or self._left < 1 or not self._view or self._succeeded or not self._fits_another():
            return False
        # with what was shown last, if there is room for that
        options = [self._follow(_joined(told, wording.LEARN)) for told in (self._told, ())]
        room = self.limits.context_tokens - len(self._buffer.ids) - reflection.tokens
        follow = next((ids for ids in options if len(ids) <= room), None)
        if follow is None:
            return False
        self._lessons.append(await self._muse(Purpose.LESSON, reflection.tokens, follow))
        # read again, a text may be of more tokens than it was said in
        return self._begins_within(self._lessons, 0, self._left)

    def episode(self) -> Episode:
        return Episode(
            task=self.task,
            index=self.index,
            segments=self._buffer.segments,
            turns=tuple(self.turns),
            ending=self._ending,
            horizon=self.limits.horizon,
            score=self._score,
            success=self._succeeded,
            opening=self._opening,
        )

    def _fits_another(self) -> bool:
        """Whether the next attempt could begin, with a lesson as long as it may be."""
        assert self.player.reflection is not None
        return self._begins_within([*self._lessons, ""], self.player.reflection.tokens, self._left - 1)

    def _begins_within(self, lessons: Sequence[str], more: int, left: int) -> bool:
        """Whether an attempt has room to begin with these lessons, and so many tokens more."""
        tokens = len(self.player.chat.begin(self._opened(self._start(lessons)))) + more
        return tokens < self.limits.context_tokens - self._reserve(left)

    @property
    def _left(self) -> int:
        """Attempts after this one, at the most."""
        reflection = self.player.reflection
        return 0 if reflection is None else reflection.attempts - 1 - len(self._lessons)

    @property
    def _score(self) -> float:
        return score_of(self.env.spec.score, self._rewards)

    @property
    def _succeeded(self) -> bool:
        return self._score >= self.env.success_at

    def _begin(self, first: Observation) -> None:
        self._before, self._rewards, self._view, self._told = len(self.turns), [], [], ()
        self._plan, self._summary, self._since_plan, self._invalid_in_a_row = "", "", 0, 0
        self._state, self._limit = _state("", first.text), self.limits.context_tokens - self._reserve(self._left)
        self._first, self._valid = self._shown(first), first.valid_actions
        self._asked = self._start(self._lessons)
        opening = self._opened(self._asked)
        self._buffer.begin(self.player.chat.begin(opening))
        if self._lessons:
            self.turns[-1] = replace(self.turns[-1], observation=self._asked)
        else:
            self._opening = opening

    def _start(self, lessons: Sequence[str]) -> str:
        return with_paragraphs(self._known(lessons), wording.PLAN if self.player.planning else "")

    def _known(self, lessons: Sequence[str]) -> str:
        """What the environment showed first, and what was learnt in earlier attempts."""
        return with_paragraphs(self._first, with_paragraphs(wording.LESSONS, *lessons) if lessons else "")

    def _reserve(self, left: int) -> int:
        """Tokens that a question at the end of a view takes, with its answer; a lesson, where attempts are left."""
        reflection, memory = self.player.reflection, self.player.memory
        asks = [(wording.LEARN, reflection.tokens)] if reflection is not None and left else []
        asks += [(wording.REMEMBER, memory.tokens)] if memory.kind is MemoryKind.SUMMARY else []
        return max((1 + len(self.player.chat.follow(_joined((), ask))) + tokens for ask, tokens in asks), default=0)

    def _opened(self, said: str) -> tuple[Message, ...]:
        opening = self.player.format.opening(self.env.spec.prompt, said, self.player.prompt)
        if not self.examples:
            return opening
        *system, user = opening
        return (Message("system", with_paragraphs(*(each.content for each in system), self.examples)), user)

    def _shown(self, observation: Observation) -> str:
        return self.player.chat.cut(observation.text, self.limits.observation_tokens)

    # --- turns

    async def _go_on(self, session: Session) -> Ending:
        planning = self.player.planning
        due = planning is not None
        while self._acted < self.limits.horizon:
            if due and not await self._made_plan():
                return Ending.BUDGET
            reply = await self._say(Purpose.ACT, self.limits.tokens_per_turn, self._limit)
            if reply is None:
                return Ending.BUDGET
            reading = self.player.format.read(reply) if self._view[-1].whole else refuse(wording.CUT)
            steps = await self._act(session, reading)
            ending = self._ended(steps)
            due = ending is None and planning is not None and self._plan_is_due(steps)
            self._answer(reading, steps, wording.REVISE if due else "")
            if ending is not None:
                return ending
            if not await self._tell():
                return Ending.BUDGET
        return Ending.HORIZON

    @property
    def _acted(self) -> int:
        return sum(turn.purpose is Purpose.ACT for turn in self.turns[self._before :])

    @property
    def _ran_out(self) -> bool:
        """The view was full before the last reply had its end: nothing that the agent could mend."""
        return not self._view[-1].whole and len(self._buffer.ids) >= self._limit

    async def _act(self, session: Session, reading: ParsedReply) -> list[tuple[str, Step]]:
        """What came of each action, as long as the episode goes on and turns are left."""
        steps: list[tuple[str, Step]] = []
        for action in reading.actions[: self.limits.horizon - self._acted + 1]:
            steps.append((action, await self._step(session, action)))
            if steps[-1][1].ended:
                break
        return steps

    async def _step(self, session: Session, action: str) -> Step:
        async with self.player.concurrency.step:
            what = f"{self.env.name} to answer '{action[:60]}'"
            step = await with_deadline(session.step(action), self.player.timeouts.step_timeout_s, what)
        self._rewards.append(validated(step, self.env.name).reward)
        return step

    def _ended(self, steps: Sequence[tuple[str, Step]]) -> Ending | None:
        invalid = not self._ran_out and all(step.status is Status.INVALID for _, step in steps)
        self._invalid_in_a_row = self._invalid_in_a_row + 1 if invalid else 0
        if steps and steps[-1][1].ended:
            return Ending.DONE if steps[-1][1].terminated else Ending.HORIZON
        if _gives_up(invalid, self._invalid_in_a_row, self.limits):
            return Ending.INVALID
        return Ending.HORIZON if self._left_after(steps) < 1 else None

    def _left_after(self, steps: Sequence[tuple[str, Step]]) -> int:
        """Turns; the reply's first action has been counted with the reply."""
        return self.limits.horizon - self._acted - max(len(steps) - 1, 0)

    def _answer(self, reading: ParsedReply, steps: Sequence[tuple[str, Step]], ask: str) -> None:
        """Writes down what came of the last reply, and what is to be told of it."""
        form, reply = self.player.format, self.turns.pop()
        if not steps:
            self._told = _joined(form.correction(reading.problem), ask)
            self.turns.append(replace(reply, observation=_text(self._told)))
            return
        told = tuple(chain.from_iterable(form.observation(self._shown(step.observation)) for _, step in steps))
        self._told = _joined(told, ask)
        for (action, step), message in zip(steps, self._told, strict=True):
            self.turns.append(
                replace(
                    reply,
                    action=None if step.status is Status.INVALID else action,
                    observation=message.content,
                    reward=step.reward,
                    state=self._state,
                    role=message.role,
                )
            )
            # of several actions in one reply the first holds its tokens
            reply = replace(reply, start=reply.end, reply="")
            self._state = _state(str(step.info.get("state", "")), step.observation.text)
            self._valid = step.observation.valid_actions

    # --- plans

    async def _made_plan(self) -> bool:
        assert self.player.planning is not None
        plan = await self._say(Purpose.PLAN, self.player.planning.tokens, self._limit)
        if plan is None:
            return False
        self._plan, self._since_plan = without_thoughts(plan), 0
        self._told = _joined((), wording.ACT)
        self.turns[-1] = replace(self.turns[-1], observation=wording.ACT)
        return await self._tell()

    def _plan_is_due(self, steps: Sequence[tuple[str, Step]]) -> bool:
        planning = self.player.planning
        assert planning is not None
        self._since_plan += max(len(steps), 1)
        failed = any(step.status is not Status.OK for _, step in steps)
        old = planning.every is not None and self._since_plan >= planning.every
        return old or (planning.on_failure and failed)

    # --- what is in view

    async def _tell(self) -> bool:
        """What is to be told, in this view or in a new one; whether there is room for it, and for a reply."""
        follow = self._follow(self._told)
        self._view[-1].follow = follow
        fits = len(self._buffer.ids) + len(follow) < self._limit
        if self._is_crowded(fits):
            if not await self._cut():
                return False
        elif not fits:
            return False
        else:
            self._buffer.given(follow)
        self._asked, self._told = _text(self._told), ()
        return True

    def _is_crowded(self, fits: bool) -> bool:
        memory, turns = self.player.memory, sum(each.purpose is Purpose.ACT for each in self._view)
        full = turns >= 2 * memory.turns or (turns > memory.turns and not fits)
        return memory.kind is not MemoryKind.FULL and full

    async def _cut(self) -> bool:
        """A view of the last turns alone."""
        chat, memory = self.player.chat, self.player.memory
        if memory.kind is MemoryKind.SUMMARY:
            follow = self._follow(_joined((), wording.REMEMBER))
            self._summary = await self._muse(Purpose.SUMMARY, memory.tokens, follow)
        kept = _last(self._view, memory.turns)
        ids = [*chat.begin(self._opened(self._recalled(kept)))]
        ids += chain.from_iterable((*each.reply, *each.follow) for each in kept)
        if len(ids) >= self._limit:
            return False
        self._buffer.begin(ids)
        self._view = kept
        return True

    def _recalled(self, kept: Sequence[_Exchange]) -> str:
        """What is said before the first turn that is kept."""
        lost = self._plan and not any(each.purpose is Purpose.PLAN for each in kept)
        return with_paragraphs(
            self._known(self._lessons),
            with_paragraphs(wording.REMEMBERED, self._summary) if self._summary else wording.FORGOTTEN,
            with_paragraphs(wording.PLANNED, self._plan) if lost else "",
            kept[0].asked,
        )

    def _follow(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """From a reply to the next; an end token that the model did not draw is given, never learnt."""
        end = self.player.chat.end_of_reply
        return (*(() if self._buffer.ids[-1] == end else (end,)), *self.player.chat.follow(messages))

    # --- replies

    async def _say(self, purpose: Purpose, most: int, limit: int) -> str | None:
        """A reply, and a turn without an answer yet; None where there is no room."""
        room = limit - len(self._buffer.ids)
        if room < 1:
            return None
        request = SampleRequest(
            prompt=tuple(self._buffer.ids),
            draw=self.player.draw,
            max_tokens=min(most, room),
            seed=derive(self.seed, "turn", len(self.turns)),
        )
        if purpose is Purpose.ACT and self.player.guided and self._valid:
            replies = [tuple(self.player.chat.reply(self.player.format.write(action))) for action in self._valid]
            reply = await sample_valid_action(self.player.sampler, request, replies)
        else:
            reply = await self.player.sampler.sample(request)
        start, end = self._buffer.drawn(reply)
        text = self.player.chat.decode(reply.ids)
        self.turns.append(
            Turn(
                segment=self._buffer.segment,
                start=start,
                end=end,
                reply=text,
                action=None,
                observation="",
                reward=0.0,
                state=self._state if purpose is Purpose.ACT else f"{purpose}: {self._state}",
                purpose=purpose,
            )
        )
        whole = reply.finish is FinishReason.STOP
        self._view.append(_Exchange(asked=self._asked, reply=reply.ids, purpose=purpose, whole=whole))
        return text

    async def _muse(self, purpose: Purpose, most: int, follow: Sequence[int]) -> str:
        """A reply at the end of a view, for which room was left; it is not among what is kept."""
        self._buffer.given(follow)
        reply = await self._say(purpose, most, self.limits.context_tokens)
        assert reply is not None, "room was left for it"
        self._view.pop()
        return without_thoughts(reply)


def _last(view: Sequence[_Exchange], turns: int) -> list[_Exchange]:
    """From the first of the last so many turns on, with the plan that was made for it."""
    start = [at for at, each in enumerate(view) if each.purpose is Purpose.ACT][-turns]
    while start and view[start - 1].purpose is Purpose.PLAN:
        start -= 1
    return list(view[start:])


def _joined(messages: Sequence[Message], ask: str) -> tuple[Message, ...]:
    """With something asked at the end, in the same breath: some templates know no two messages of one role in a row."""
    if not ask:
        return tuple(messages)
    if not messages:
        return (Message("user", ask),)
    *before, last = messages
    return (*before, replace(last, content=with_paragraphs(last.content, ask)))


def _text(messages: Sequence[Message]) -> str:
    return "\n".join(message.content for message in messages)


def _state(told: str, shown: str) -> str:
    """Names where the episode stands: as the environment does, or, where it has no names, by what it shows there."""
    return readable(told) or f"shown-{sha256(shown.encode(errors='replace')).hexdigest()[:16]}"


def _gives_up(invalid: bool, in_a_row: int, limits: EpisodeLimits) -> bool:
    if invalid and limits.on_invalid is OnInvalid.END:
        return True
    return limits.invalid_limit is not None and in_a_row >= limits.invalid_limit
