"""Episode loop: observations, plans, replies and steps, attempt after attempt.

The model's view only grows, token by token, until its memory is cut: then a new view begins with the opening, a word
about what is left out, and the turns that are kept, in the tokens in which they were sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import NamedTuple

from ...dsl.model.recipe import MemoryKind, OnInvalid
from ...envs.protocol import Observation, Session, Status, Step, score_of
from ..agents import prompts
from ..agents.chat import readable
from ..agents.messages import Message, ParsedReply, refuse
from ..agents.prompts import with_paragraphs
from ..agents.thoughts import without_thoughts
from ..protocols import FinishReason, SampleRequest
from ..seeds import derive
from .env_calls import ConnectedEnv, check_score, measures_of, validated, with_deadline
from .episode import Ending, Episode, PendingVerdict, Purpose, Task, Turn
from .other_seats import OtherSeats
from .player import EpisodeLimits, Player
from .token_buffer import TokenBuffer
from .verdicts import find_pending

__all__ = ["EpisodeRunner"]


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """A reply in view, with what stands before and after it."""

    prompt: str
    """Text before it."""
    reply: tuple[int, ...]
    purpose: Purpose
    complete: bool
    """It ended, rather than being cut off."""
    text: str = ""
    """The reply."""
    messages: tuple[Message, ...] = ()
    """Messages from it to the next reply."""
    follow: tuple[int, ...] = ()
    """Their tokens."""


class _Taken(NamedTuple):
    """An action and its result."""

    action: str
    step: Step
    seconds: float


@dataclass(slots=True, kw_only=True)
class EpisodeRunner:
    """One episode."""

    player: Player
    env: ConnectedEnv
    task: Task
    index: int
    limits: EpisodeLimits
    seed: int
    examples: Sequence[Message] = ()
    """The chat of demonstrations of other tasks."""

    turns: list[Turn] = field(default_factory=list)
    _buffer: TokenBuffer = field(default_factory=TokenBuffer)
    _opening: tuple[Message, ...] = ()
    _lessons: list[str] = field(default_factory=list)
    _ending: Ending = Ending.HORIZON
    # of the attempt under way
    _turns_before: int = 0
    """Turns of earlier attempts."""
    _others: OtherSeats | None = None
    _earned_before: float = 0.0
    """By other seats' moves before its first step, whose reward has it too."""
    _rewards: list[float] = field(default_factory=list)
    """Rewards of its steps; a reply without an action has none that could overwrite an earlier score."""
    _measures: Mapping[str, float] = field(default_factory=dict)
    """By its last step."""
    _last_step: Step | None = None
    _first_observation: str = ""
    _view_limit: int = 0
    """Tokens of a view while it acts; the rest is reserved for the lesson or the summary at its end."""
    _view: list[_Exchange] = field(default_factory=list)
    _view_opening: tuple[Message, ...] = ()
    _pending: tuple[Message, ...] = ()
    """Messages to send before the next reply."""
    _prompt: str = ""
    """Text of the last messages."""
    _picture: bytes | None = None
    """Of the first observation of the first attempt."""
    _state: str = ""
    _valid: tuple[str, ...] | None = None
    """Actions that the environment listed last, if any."""
    _plan: str = ""
    _turns_since_plan: int = 0
    _summary: str = ""
    _invalid_in_a_row: int = 0

    # --- attempts

    async def run_attempt(self, session: Session) -> None:
        """Play until the environment, the horizon or a budget ends the attempt."""
        self._others = OtherSeats(self.player, self.env.spec, self.task.seed, self.limits, self.examples)
        begun = await self._others.begin(session.first, partial(self._send, session))
        self._begin_attempt(begun)
        self._ending = Ending.UNCONTESTED if begun.ended else await self._run_turns(session)
        check_score(self._score, self.env)

    async def reflect(self) -> bool:
        """Sample a lesson from a failed attempt; return whether another attempt follows."""
        reflection = self.player.reflection
        if reflection is None or self._attempts_left < 1 or not self._view or self._succeeded or not self._can_retry():
            return False
        if self._pending_verdict is not None:  # it is not known yet whether it failed
            return False
        # with the last observation, if there is room for it
        options = [self._render_next(_add_question(messages, prompts.LEARN)) for messages in (self._pending, ())]
        room = self.limits.context_tokens - len(self._buffer.ids) - reflection.tokens
        follow = next((ids for ids in options if len(ids) <= room), None)
        if follow is None:
            return False
        self._lessons.append(await self._sample_note(Purpose.LESSON, reflection.tokens, follow))
        # encoded again, a text may have more tokens than it was sampled in
        return self._fits_opening(self._lessons, 0, self._attempts_left)

    def build_episode(self) -> Episode:
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
            prompt=self.player.prompt_version(self.env.spec),
            picture=self._picture,
            seats=self._others.reports if self._others else (),
            measures=self._measures,
            pending=self._pending_verdict,
        )

    def _can_retry(self) -> bool:
        """Return whether the next attempt could begin, with a lesson of full length."""
        assert self.player.reflection is not None
        return self._fits_opening([*self._lessons, ""], self.player.reflection.tokens, self._attempts_left - 1)

    def _fits_opening(self, lessons: Sequence[str], more: int, left: int) -> bool:
        """Return whether an attempt could begin with these lessons and `more` tokens."""
        tokens = len(self.player.chat.begin(self._compose_opening(self._compose_start(lessons)))) + more
        return tokens < self.limits.context_tokens - self._reserve_tokens(left)

    @property
    def _attempts_left(self) -> int:
        reflection = self.player.reflection
        return 0 if reflection is None else reflection.attempts - 1 - len(self._lessons)

    @property
    def _score(self) -> float:
        return score_of(self.env.spec.score, self._rewards or (self._earned_before,))

    @property
    def _succeeded(self) -> bool:
        return self._score >= self.env.success_at

    @property
    def _pending_verdict(self) -> PendingVerdict | None:
        return find_pending(self._last_step, self._rewards, len(self.turns) - 1, self.env)

    def _begin_attempt(self, begun: Step) -> None:
        first = begun.observation
        self._turns_before, self._rewards, self._view, self._pending = len(self.turns), [], [], ()
        self._last_step, self._earned_before, self._measures = None, begun.reward, measures_of(begun)
        self._plan, self._summary, self._turns_since_plan, self._invalid_in_a_row = "", "", 0, 0
        self._view_limit = self.limits.context_tokens - self._reserve_tokens(self._attempts_left)
        self._state = _name_state("", first.text)
        self._first_observation, self._valid = self._truncate(first), first.valid_actions
        self._prompt = self._compose_start(self._lessons)
        opening = self._compose_opening(self._prompt)
        self._view_opening = opening
        self._buffer.start_segment(self.player.chat.begin(opening))
        if self._lessons:
            self.turns[-1] = replace(self.turns[-1], observation=self._prompt)
        else:
            self._opening, self._picture = opening, first.picture

    def _compose_start(self, lessons: Sequence[str]) -> str:
        return with_paragraphs(self._compose_task(lessons), prompts.PLAN if self.player.planning else "")

    def _compose_task(self, lessons: Sequence[str]) -> str:
        """Compose the first observation and the lessons of earlier attempts."""
        return with_paragraphs(self._first_observation, with_paragraphs(prompts.LESSONS, *lessons) if lessons else "")

    def _reserve_tokens(self, left: int) -> int:
        """Count the tokens to reserve at the end of a view for a summary, or for a lesson where attempts are left."""
        reflection, memory = self.player.reflection, self.player.memory
        questions = [(prompts.LEARN, reflection.tokens)] if reflection is not None and left else []
        questions += [(prompts.REMEMBER, memory.tokens)] if memory.kind is MemoryKind.SUMMARY else []
        return max(
            (1 + len(self.player.chat.follow(_add_question((), question))) + tokens for question, tokens in questions),
            default=0,
        )

    def _compose_opening(self, text: str) -> tuple[Message, ...]:
        return self.player.open(self.env.spec, text, self.examples)

    def _truncate(self, observation: Observation) -> str:
        return self.player.show(observation, self.limits)

    # --- turns

    async def _run_turns(self, session: Session) -> Ending:
        planning = self.player.planning
        due = planning is not None
        while self._turns_taken < self.limits.horizon:
            if due and not await self._sample_plan():
                return Ending.BUDGET
            reply = await self._sample_turn(Purpose.ACT, self.limits.tokens_per_turn, self._view_limit)
            if reply is None:
                return Ending.BUDGET
            parsed = (
                self.player.format.read(reply, self._valid or ()) if self._view[-1].complete else refuse(prompts.CUT)
            )
            steps = await self._act(session, parsed)
            ending = self._find_ending(steps)
            due = ending is None and planning is not None and self._is_plan_due(steps)
            self._record_steps(parsed, steps, prompts.REVISE if due else "")
            if ending is not None:
                return ending
            if not await self._append_observation():
                return Ending.BUDGET
        return Ending.HORIZON

    @property
    def _turns_taken(self) -> int:
        return sum(turn.purpose is Purpose.ACT for turn in self.turns[self._turns_before :])

    async def _act(self, session: Session, parsed: ParsedReply) -> list[_Taken]:
        """Take the actions one by one, while the episode goes on and turns are left."""
        steps: list[_Taken] = []
        for action in parsed.actions[: self.limits.horizon - self._turns_taken + 1]:
            started = self.player.clock()
            step = await self._step(session, action)
            steps.append(_Taken(action, step, self.player.clock() - started))
            if step.ended:
                break
        return steps

    async def _step(self, session: Session, action: str) -> Step:
        assert self._others is not None, "they are seated before the first turn"
        send = partial(self._send, session)
        step = await self._others.go_on(await send(action), send)
        self._rewards.append(step.reward)
        self._measures, self._last_step = measures_of(step), step
        return step

    async def _send(self, session: Session, action: str) -> Step:
        async with self.player.concurrency.step():
            what = f"{self.env.name} to answer '{action[:60]}'"
            step = await with_deadline(session.step(action), self.player.timeouts.step_timeout_s, what)
        return validated(step, self.env.name)

    def _find_ending(self, steps: Sequence[_Taken]) -> Ending | None:
        # where the view was full before the reply ended, the agent cannot fix it
        exhausted = not self._view[-1].complete and len(self._buffer.ids) >= self._view_limit
        invalid = not exhausted and all(each.step.status is Status.INVALID for each in steps)
        self._invalid_in_a_row = self._invalid_in_a_row + 1 if invalid else 0
        if steps and steps[-1].step.ended:
            return Ending.DONE if steps[-1].step.terminated else Ending.HORIZON
        limit = self.limits.invalid_limit
        too_many = limit is not None and self._invalid_in_a_row >= limit
        if too_many or (invalid and self.limits.on_invalid is OnInvalid.END):
            return Ending.INVALID
        # the reply's first action has been counted with the reply
        left = self.limits.horizon - self._turns_taken - max(len(steps) - 1, 0)
        return Ending.HORIZON if left < 1 else None

    def _record_steps(self, parsed: ParsedReply, steps: Sequence[_Taken], question: str) -> None:
        """Record the result of the last reply, and prepare the messages after it."""
        form, reply = self.player.format, self.turns.pop()
        if not steps:
            self._pending = _add_question(form.correction(parsed.problem), question)
            self.turns.append(replace(reply, observation=_join_contents(self._pending)))
            return
        messages = tuple(chain.from_iterable(form.observation(self._truncate(each.step.observation)) for each in steps))
        self._pending = _add_question(messages, question)
        for (action, step, seconds), message in zip(steps, self._pending, strict=True):
            self.turns.append(
                replace(
                    reply,
                    action=None if step.status is Status.INVALID else action,
                    observation=message.content,
                    reward=step.reward,
                    state=self._state,
                    role=message.role,
                    env_s=seconds,
                    picture=step.observation.picture,
                )
            )
            # of several actions in one reply the first holds its tokens
            reply = replace(reply, start=reply.end, reply="", sampling_s=0.0)
            self._state = _name_state(str(step.info.get("state", "")), step.observation.text)
            self._valid = step.observation.valid_actions

    # --- plans

    async def _sample_plan(self) -> bool:
        assert self.player.planning is not None
        plan = await self._sample_turn(Purpose.PLAN, self.player.planning.tokens, self._view_limit)
        if plan is None:
            return False
        self._plan, self._turns_since_plan = without_thoughts(plan), 0
        self._pending = _add_question((), prompts.ACT)
        self.turns[-1] = replace(self.turns[-1], observation=prompts.ACT)
        return await self._append_observation()

    def _is_plan_due(self, steps: Sequence[_Taken]) -> bool:
        planning = self.player.planning
        assert planning is not None
        self._turns_since_plan += max(len(steps), 1)
        failed = any(each.step.status is not Status.OK for each in steps)
        old = planning.every is not None and self._turns_since_plan >= planning.every
        return old or (planning.on_failure and failed)

    # --- what is in view

    async def _append_observation(self) -> bool:
        """Append the pending messages to this view or a new one; return whether there is room for them and a reply."""
        last = self._view[-1]
        last.messages, last.follow = self._pending, self._render_next(self._pending)
        ids = self._render_view()
        fits = len(ids) < self._view_limit
        if self._is_view_crowded(fits):
            if not await self._shorten_view():
                return False
        elif not fits:
            return False
        else:
            self._buffer.extend_context(ids)
        self._prompt, self._pending = _join_contents(self._pending), ()
        return True

    def _is_view_crowded(self, fits: bool) -> bool:
        memory, turns = self.player.memory, sum(each.purpose is Purpose.ACT for each in self._view)
        full = turns >= 2 * memory.turns or (turns > memory.turns and not fits)
        return memory.kind is not MemoryKind.FULL and full

    async def _shorten_view(self) -> bool:
        """Start a view of the last turns; return whether it leaves room."""
        chat, memory = self.player.chat, self.player.memory
        if memory.kind is MemoryKind.SUMMARY:
            follow = self._render_next(_add_question((), prompts.REMEMBER))
            self._summary = await self._sample_note(Purpose.SUMMARY, memory.tokens, follow)
        kept = _select_last_turns(self._view, memory.turns)
        opening = self._compose_opening(self._compose_recall(kept))
        if chat.strips:
            ids = chat.render((), opening, [(each.text, each.messages) for each in kept])
        else:
            ids = (*chat.begin(opening), *chain.from_iterable((*each.reply, *each.follow) for each in kept))
        if len(ids) >= self._view_limit:
            return False
        self._buffer.start_segment(ids)
        self._view, self._view_opening = kept, opening
        return True

    def _compose_recall(self, kept: Sequence[_Exchange]) -> str:
        """Compose the text before the first turn that is kept."""
        is_plan_lost = self._plan and not any(each.purpose is Purpose.PLAN for each in kept)
        return with_paragraphs(
            self._compose_task(self._lessons),
            with_paragraphs(prompts.REMEMBERED, self._summary) if self._summary else prompts.FORGOTTEN,
            with_paragraphs(prompts.PLANNED, self._plan) if is_plan_lost else "",
            kept[0].prompt,
        )

    def _render_view(self) -> Sequence[int]:
        """Render the view up to the next reply: the tokens so far and what follows, or all of it without the thoughts
        of earlier turns."""
        chat = self.player.chat
        if not chat.strips:
            return (*self._buffer.ids, *self._view[-1].follow)
        return chat.render(self._buffer.ids, self._view_opening, [(each.text, each.messages) for each in self._view])

    def _render_next(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Render from the last reply to the next; an end token that the model did not sample is context."""
        chat = self.player.chat
        end = () if self._buffer.ids[-1] in chat.ends else (chat.end_of_reply,)
        return (*end, *chat.follow(messages))

    # --- replies

    async def _sample_turn(self, purpose: Purpose, max_tokens: int, limit: int) -> str | None:
        """Sample a reply as a turn without an observation yet; return None where there is no room."""
        room = limit - len(self._buffer.ids)
        if room < 1:
            return None
        request = SampleRequest(
            prompt=tuple(self._buffer.ids),
            sampling=self.player.sampling,
            max_tokens=min(max_tokens, room),
            seed=derive(self.seed, "turn", len(self.turns)),
        )
        started = self.player.clock()
        valid = (self._valid or ()) if purpose is Purpose.ACT else ()
        reply = await self.player.sample(self.player.sampler, request, valid)
        start, end = self._buffer.append_sampled(reply)
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
                sampling_s=self.player.clock() - started,
            )
        )
        complete = reply.finish is FinishReason.STOP
        self._view.append(
            _Exchange(prompt=self._prompt, reply=reply.ids, purpose=purpose, complete=complete, text=text)
        )
        return text

    async def _sample_note(self, purpose: Purpose, max_tokens: int, follow: Sequence[int]) -> str:
        """Sample a reply at the end of a view, in reserved tokens; it is not kept in view."""
        self._buffer.append_context(follow)
        reply = await self._sample_turn(purpose, max_tokens, self.limits.context_tokens)
        assert reply is not None, "room was left for it"
        self._view.pop()
        return without_thoughts(reply)


def _select_last_turns(view: Sequence[_Exchange], turns: int) -> list[_Exchange]:
    """Select the last turns, with the plan before the first of them."""
    start = [at for at, each in enumerate(view) if each.purpose is Purpose.ACT][-turns]
    while start and view[start - 1].purpose is Purpose.PLAN:
        start -= 1
    return list(view[start:])


def _add_question(messages: Sequence[Message], question: str) -> tuple[Message, ...]:
    """Append a question to the last message: some templates allow no two messages of one role in a row."""
    if not question:
        return tuple(messages)
    if not messages:
        return (Message("user", question),)
    *before, last = messages
    return (*before, replace(last, content=with_paragraphs(last.content, question)))


def _join_contents(messages: Sequence[Message]) -> str:
    return "\n".join(message.content for message in messages)


def _name_state(name: str, observation: str) -> str:
    """Name a state by the environment's name for it, or else by a hash of its observation."""
    return readable(name) or f"shown-{sha256(observation.encode(errors='replace')).hexdigest()[:16]}"
