"""Demonstrations in the model's own tokens: an expert's play, a given conversation, or a relabelled episode.

The result is an Episode whose `sampled` marks the tokens to imitate. After a random action the expert goes on from
where that led, so that recovery is demonstrated as well. Words to imitate must be in the vocabulary, or it is an error.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

import numpy as np

from ...dsl.model.algorithm import LossOn
from ...dsl.model.recipe import Rollout
from ...envs.errors import EnvFault
from ...envs.protocol import Observation, Reached, Session, Status, score_of
from ..agents.chat import Chat
from ..agents.formats import AgentFormat
from ..agents.messages import Message
from ..agents.prompts import add_actions
from ..backends.hf_models import UnknownWord
from ..errors import RunError, StepRefused
from ..policy_endpoint.messages import ChatMessage, Role
from ..policy_endpoint.voice import Voice
from ..rollout.env_calls import ConcurrencyLimits, ConnectedEnv, open_session, validated, with_deadline, with_retries
from ..rollout.episode import Ending, Episode, Segment, Task, Turn
from ..rollout.player import EpisodeLimits
from ..rollout.token_buffer import TokenBuffer
from ..seeds import derive
from ..text_format import format_count
from .dataset import Conversation, ConversationReply

__all__ = ["Demonstrator", "NoExpert", "NoHindsight", "NoSolution", "append_solution", "keep_solved"]

T = TypeVar("T")


class NoExpert(RunError):
    """The environment has no solution to imitate."""


class NoSolution(NoExpert):
    """The environment has no solution of this task; it may have some of others."""

    def __init__(self, env: str, task: str) -> None:
        super().__init__(
            f"environment '{env}' has no solution of task '{task}': use an environment with an expert, or "
            "'data: {source: file, path: ...}'"
        )


class NoHindsight(RunError):
    """The environment cannot tell which goals were reached."""


async def append_solution(env: ConnectedEnv, task: Task, opening: Sequence[Message], timeout_s: float) -> list[Message]:
    """Append a solution of the task to the opening."""
    script = await _solution(env, task, timeout_s)
    if script is None:
        raise NoExpert(
            f"environment '{env.name}' has no solution of task '{task.id}' to show the critic: use one with "
            "an expert, or 'critic.privileged: false'"
        )
    *before, last = opening
    return [*before, replace(last, content="\n".join((last.content, "", "A solution:", *script)))]


def keep_solved(
    env: str, tasks: Sequence[Task], shown: Sequence[Episode | None], note: Callable[[str], None]
) -> list[Episode]:
    """Leave out the tasks that the expert has no solution for; raise `NoSolution` if that is all of them."""
    solved = [episode for episode in shown if episode is not None]
    if tasks and not solved:
        raise NoSolution(env, tasks[0].id)
    if num := len(shown) - len(solved):
        note(f"the expert of '{env}' has no solution of {num} of {format_count(len(shown), 'task')}: left out")
    return solved


async def _solution(env: ConnectedEnv, task: Task, timeout_s: float) -> tuple[str, ...] | None:
    """Ask for a solution, with the timeout of a reset: it may have to be played to be known."""
    return await with_deadline(env.client.expert(task.id, task.seed), timeout_s, f"{env.name} to show task '{task.id}'")


def _refuse_seats(observation: Observation, env: ConnectedEnv, task: Task) -> None:
    """Nobody plays other seats here: what an expert did in them must not be imitated."""
    if observation.seat is not None:
        raise NoSolution(env.name, task.id)


def _finish(buffer: TokenBuffer, turns: Sequence[Turn], context_tokens: int) -> tuple[Segment]:
    """Return the segment up to the end of the last reply: nothing after it is trained on."""
    (segment,) = buffer.segments
    end = turns[-1].end if turns else context_tokens
    sampled = segment.sampled[:end]
    sampled[0] = False  # nothing predicts the first token
    return (
        Segment(
            ids=segment.ids[:end], sampled=sampled, logprobs=segment.logprobs[:end], versions=segment.versions[:end]
        ),
    )


@contextmanager
def _locate_refusals(origin: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # each template has its own way to refuse an order of roles, or a role
        raise RunError(
            f"demonstrations, {origin}: the chat template cannot show this conversation: {str(error)[:200]}; "
            "begin with 'user', or with 'system' and 'user', write other roles as 'user', or give another one as "
            "'model.chat_template'"
        ) from error


def _write_calls(voice: Voice, talk: Conversation) -> Conversation:
    """Write a conversation with tools as one of texts, in the form in which the policy endpoint shows it."""

    def show(messages: Sequence[Message]) -> list[ChatMessage]:
        return [ChatMessage(Role(each.role), each.content) for each in messages]

    replies = list[ConversationReply]()
    for at, reply in enumerate(talk.replies):
        text = voice.join(reply.text, reply.calls)
        said = voice.read(voice.chat.write(text), with_calls=bool(reply.calls), parallel=True)
        if len(said.calls) < len(reply.calls):
            raise RunError(
                f"demonstrations, {talk.origin}, reply {at + 1}: its calls, as the model writes them, cannot be read; "
                "call tools of the line alone, and where the chat template takes no more, one call without a text"
            )
        replies.append(replace(reply, text=text, observations=tuple(map(voice.show, show(reply.observations)))))
    return replace(talk, opening=tuple(voice.open(show(talk.opening))), replies=tuple(replies))


def _append(buffer: TokenBuffer, ids: Sequence[int], *, trained: bool) -> tuple[int, int]:
    return buffer.append(ids, [trained] * len(ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrator:
    """Plays an expert's actions and renders demonstrations."""

    chat: Chat
    encode: Callable[[str], list[int]]
    """Encodes words to imitate; raises UnknownWord."""
    format: AgentFormat
    prompt: str | None
    shows_actions: bool
    timeouts: Rollout
    concurrency: ConcurrencyLimits
    noise: float
    loss_on: LossOn
    clock: Callable[[], float]
    voices: dict[str, Voice] = field(default_factory=dict, init=False)
    """By the tools of a given conversation: finding out how a template renders tools takes many renderings."""

    async def attempt(self, env: ConnectedEnv, task: Task, limits: EpisodeLimits, seed: int) -> Episode:
        """Play a demonstration, retried after faults as an agent's episode is; `NoExpert` where there is none."""

        async def once() -> Episode:
            async with open_session(env, task, self.timeouts, self.concurrency) as session:
                return await self._play(env, session, task, limits, seed)

        return await with_retries(once, task, 0, limits.horizon, self.timeouts.retries, self.clock)

    async def _play(self, env: ConnectedEnv, session: Session, task: Task, limits: EpisodeLimits, seed: int) -> Episode:
        trains_all = self.loss_on is LossOn.ALL
        _refuse_seats(session.first, env, task)
        opening = self.format.opening(env.spec.prompt, self._observe(session.first, limits), self.prompt)
        buffer = TokenBuffer()
        _append(buffer, self.chat.begin(opening), trained=trains_all)
        turns: list[Turn] = []
        ending = Ending.HORIZON
        async for action, noisy, then in self.choose_actions(env, session, task, limits.horizon, seed):
            text = self.format.write_step(action, then)
            reply = self._reply(text, f"task '{task.id}' of environment '{env.name}'")
            if len(buffer.ids) + len(reply) > limits.context_tokens:
                ending = Ending.BUDGET
                break
            start, end = _append(buffer, reply, trained=trains_all or not noisy or self.loss_on is LossOn.ACTIONS)
            step = validated(await self._call(session.step(action), env, task), env.name)
            observation = self._observe(step.observation, limits)
            turns.append(
                Turn(
                    segment=0,
                    start=start,
                    end=end,
                    reply=text,
                    action=None if step.status is Status.INVALID else action,
                    observation=observation,
                    reward=step.reward,
                    role=self.format.observation_role,
                    picture=step.observation.picture,
                )
            )
            if step.ended:
                ending = Ending.DONE if step.terminated else Ending.HORIZON
                break
            _refuse_seats(step.observation, env, task)
            _append(buffer, self.chat.follow(self.format.observation(observation)), trained=trains_all)
        score = score_of(env.spec.score, [turn.reward for turn in turns])
        return Episode(
            task=task,
            index=0,
            segments=_finish(buffer, turns, limits.context_tokens),
            turns=tuple(turns),
            ending=ending,
            horizon=limits.horizon,
            score=score,
            success=score >= env.success_at,
            opening=opening,
            picture=session.first.picture,
        )

    def _observe(self, observation: Observation, limits: EpisodeLimits) -> str:
        text = self.chat.truncate(observation.text, limits.observation_tokens)
        return add_actions(text, observation.valid_actions) if self.shows_actions else text

    async def choose_actions(
        self, env: ConnectedEnv, session: Session, task: Task, horizon: int, seed: int
    ) -> AsyncIterator[tuple[str, bool, str]]:
        """Yield actions, whether each is noise, and the one after it, if that is known; fewer than `horizon` where the
        expert has none."""
        script = await self._find_script(env, session, task)
        if script is not None:
            for step, then in zip(script[:horizon], (*script[1:], ""), strict=False):
                yield step, False, then
            return
        draws = np.random.Generator(np.random.PCG64(derive(seed, "noise")))
        for turn in range(horizon):
            noisy = bool(draws.random() < self.noise)
            action = None
            if noisy:
                action = await self._call(session.noise_action(derive(seed, "action", turn)), env, task)
            if action is None:
                noisy = False
                action = await self._call(session.advice(), env, task)
            if action is None:
                return
            yield action, noisy, ""

    async def _find_script(self, env: ConnectedEnv, session: Session, task: Task) -> Sequence[str] | None:
        """Find a solution known from the start, where the environment cannot advise on the way."""
        if await self._call(session.advice(), env, task) is not None:
            return None
        script = await _solution(env, task, self.timeouts.reset_timeout_s)
        if script is None:
            raise NoSolution(env.name, task.id)
        if self.noise:
            raise NoExpert(
                f"environment '{env.name}' has solutions only from the start of a task, not from where a random "
                "action led: set 'data.noise: 0'"
            )
        return script

    async def _call(self, awaitable: Awaitable[T], env: ConnectedEnv, task: Task) -> T:
        return await with_deadline(awaitable, self.timeouts.step_timeout_s, f"{env.name} to show task '{task.id}'")

    # --- episodes that reached more than their goal

    async def hindsight(self, env: ConnectedEnv, episode: Episode, limits: EpisodeLimits) -> list[Episode]:
        """Return the episode as a demonstration of each other goal that it reached."""
        understood = [(turn, turn.action) for turn in episode.turns if turn.action is not None]
        found = await self._find_reached(env, episode.task, [action for _, action in understood])
        observation = (self._relabel(env, episode, understood[each.actions - 1][0], each, limits) for each in found)
        return [each for each in observation if each is not None]

    async def _find_reached(self, env: ConnectedEnv, task: Task, actions: Sequence[str]) -> tuple[Reached, ...]:
        try:
            found = await self._call(env.client.hindsight(task.id, task.seed, actions), env, task)
        except EnvFault as error:
            raise StepRefused(f"hindsight: {error}; fix the environment and resume") from error
        if found is None:
            raise NoHindsight(
                f"environment '{env.name}' cannot tell which other goals an episode reached: set "
                "'data.relabel: none', or use an environment with hindsight"
            )
        if not all(0 < each.actions <= len(actions) for each in found):
            raise StepRefused(f"hindsight: {env.name} returned actions of task '{task.id}' that were never taken")
        return found

    def _relabel(
        self, env: ConnectedEnv, episode: Episode, last: Turn, reached: Reached, limits: EpisodeLimits
    ) -> Episode | None:
        """Relabel the episode, word for word, up to the turn that reached the goal; None where its new opening leaves
        no room."""
        opening = self.format.opening(env.spec.prompt, self._observe(reached.first, limits), self.prompt)
        (segment,), start = episode.segments, episode.turns[0].start
        buffer = TokenBuffer()
        _append(buffer, self.chat.begin(opening), trained=self.loss_on is LossOn.ALL)
        offset = len(buffer.ids) - start
        # what reached the goal is trained on, whatever it was meant for
        sampled = [*segment.sampled[start : last.start].tolist(), *[True] * (last.end - last.start)]
        buffer.append(segment.ids[start : last.end].tolist(), sampled)
        if len(buffer.ids) > limits.context_tokens:
            return None
        turns = tuple(
            replace(turn, start=turn.start + offset, end=turn.end + offset, reward=0.0)
            for turn in episode.turns
            if turn.end <= last.end
        )
        return replace(
            episode,
            task=replace(episode.task, id=reached.task),
            segments=_finish(buffer, turns, limits.context_tokens),
            turns=turns,
            ending=Ending.DONE,
            score=env.spec.score_range[1],
            success=True,
            opening=opening,
        )

    # --- given conversations

    def render(self, conversation: Conversation, context_tokens: int) -> Episode:
        """Render a conversation in tokens, up to the last reply that fits."""
        if not conversation.tools:
            return self._render(conversation, context_tokens)
        voice = self._speak_with(conversation)
        return replace(self, chat=voice.chat)._render(_write_calls(voice, conversation), context_tokens)

    def _speak_with(self, conversation: Conversation) -> Voice:
        with _locate_refusals(conversation.origin):
            key = json.dumps([asdict(tool) for tool in conversation.tools])
            if key not in self.voices:
                self.voices[key] = Voice(self.chat, conversation.tools, thinking=self.chat.thinking)
            return self.voices[key]

    def _render(self, conversation: Conversation, context_tokens: int) -> Episode:
        trains_all = self.loss_on is LossOn.ALL
        buffer, origin = TokenBuffer(), conversation.origin
        _append(buffer, self._show(conversation.opening, origin, opens=True), trained=trains_all)
        turns: list[Turn] = []
        for at, reply in enumerate(conversation.replies):
            what = f"{origin}, reply {at + 1}"
            ids = self._reply(reply.text, what, trained=reply.trained)
            if len(buffer.ids) + len(ids) > context_tokens:
                break
            start, end = _append(buffer, ids, trained=trains_all or reply.trained)
            observations = "\n".join(message.content for message in reply.observations)
            turns.append(
                Turn(
                    segment=0,
                    start=start,
                    end=end,
                    reply=reply.text,
                    action=reply.text,
                    observation=observations,
                    reward=0.0,
                    state=reply.state,
                )
            )
            if at + 1 < len(conversation.replies):
                _append(buffer, self._show(reply.observations, origin, opens=False), trained=trains_all)
        return Episode(
            task=conversation.task,
            index=0,
            segments=_finish(buffer, turns, context_tokens),
            turns=tuple(turns),
            ending=Ending.DONE if len(turns) == len(conversation.replies) else Ending.BUDGET,
            horizon=max(len(conversation.replies), 1),
            score=conversation.score,
            success=conversation.success,
            opening=conversation.opening,
        )

    def _show(self, messages: Sequence[Message], origin: str, *, opens: bool) -> tuple[int, ...]:
        with _locate_refusals(origin):
            hidden = self.chat.find_hidden(tuple(each.role for each in messages), opens)
            if hidden is not None:
                raise ValueError(f"it leaves out a message of the role '{hidden}'")
            return (self.chat.begin if opens else self.chat.follow)(messages)

    def _reply(self, text: str, what: str, *, trained: bool = True) -> list[int]:
        written = self.chat.write(text)
        ids = self.encode_reply(written, what) if trained else self._check_end(self.chat.encode(written), text, what)
        return [*ids, self.chat.end_of_reply]

    def encode_reply(self, written: str, what: str = "a reply") -> list[int]:
        """Encode a reply to imitate, without its end."""
        try:
            ids = self.encode(written)
        except UnknownWord as error:
            raise RunError(f"demonstrations, {what}: {error}") from error
        return self._check_end(ids, written, what)

    def _check_end(self, ids: list[int], text: str, what: str) -> list[int]:
        if self.chat.end_of_reply in ids:
            end = self.chat.end_text
            raise RunError(
                f"demonstrations, {what}: the reply must not contain '{end}', which is added to it; got {text!r:.200}"
            )
        return ids
