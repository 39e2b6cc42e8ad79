"""Seats of an episode that models of the run play, each in a conversation of its own and in the agent's form.

What they say is not part of the agent's sequences: none of it is trained on. They sample by the environment's seed, so
that in all episodes of a group the opponent answers the same play in the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from ...envs.protocol import EnvSpec, Observation, Seat, SeatModel, Step, score_of
from ..agents.messages import Message
from ..errors import StepRefused
from ..protocols import FinishReason, Sampled, Sampler, SampleRequest
from ..seeds import derive
from .episode import SeatReport
from .player import EpisodeLimits, Player

__all__ = ["NO_EARLIER", "OtherSeats"]

Send = Callable[[str], Awaitable[Step]]
"""Takes an action of the seat whose move it is."""

NO_EARLIER = (
    "an earlier checkpoint plays only in a run on a CPU under 'hardware.launcher: inline' whose 'checkpoint.export' is "
    "true; elsewhere serve one by 'agym serve', and write its address as the option 'opponent', {url: ..., model: ...}"
)
_NO_MOVE = ""
"""What is sent for a reply without an action: a wrong move, which the environment answers as it does anybody's."""


@dataclass(slots=True, kw_only=True)
class _Conversation:
    """What a seat was shown and has said."""

    seat: Seat
    ids: tuple[int, ...] = ()
    opening: tuple[Message, ...] = ()
    said: list[tuple[str, tuple[Message, ...]]] = field(default_factory=list)
    """Replies, each with the messages after it."""
    actions: list[str] = field(default_factory=list)
    model: str = ""
    """The model that played it; if no checkpoint was saved yet, the policy plays an earlier one's seat."""
    tokens: int = 0
    version: int = -1

    @property
    def report(self) -> SeatReport:
        return SeatReport(
            name=self.seat.name,
            model=self.model or self.seat.model.value,
            version=self.version,
            tokens=self.tokens,
            actions=tuple(self.actions),
        )


class OtherSeats:
    """Everybody in an episode but the agent."""

    def __init__(
        self, player: Player, env: EnvSpec, seed: int, limits: EpisodeLimits, examples: Sequence[Message] = ()
    ) -> None:
        self._player, self._env, self._seed, self._limits, self._examples = player, env, seed, limits, examples
        self._conversations: dict[str, _Conversation] = {}
        self._earned: list[float] = []
        """By moves before the agent's first."""

    @property
    def reports(self) -> tuple[SeatReport, ...]:
        return tuple(each.report for each in self._conversations.values())

    async def begin(self, first: Observation, send: Send) -> Step:
        """Play until the agent is to move for the first time, or has no turn at all; return the result. Its reward is
        in that of the agent's first step as well."""
        step = await self.go_on(Step(observation=first), send)
        if first.seat is not None:
            self._earned = [step.reward]
        return step

    async def go_on(self, step: Step, send: Send) -> Step:
        """Play after a step of the agent's until it is to move again; return the combined result."""
        status, rewards = step.status, [*self._earned, step.reward]
        self._earned = []
        while step.observation.seat is not None and not step.ended:
            step = await send(await self._reply(step.observation.seat, step.observation))
            rewards.append(step.reward)
        if len(rewards) == 1:
            return step
        return replace(step, status=status, reward=score_of(self._env.score, rewards))

    async def _reply(self, seat: Seat, observation: Observation) -> str:
        talk = self._conversations.setdefault(seat.name, _Conversation(seat=seat))
        talk.ids = self._render(talk, observation)
        room = self._limits.context_tokens - len(talk.ids)
        action = await self._sample(talk, observation, room) if room > 0 else _NO_MOVE
        talk.actions.append(action)
        return action

    def _render(self, talk: _Conversation, observation: Observation) -> tuple[int, ...]:
        """Render a conversation up to its next reply; where that leaves no room it begins anew, with what is shown
        now."""
        chat, text = self._player.chat, self._player.show(observation, self._limits)
        if talk.said:
            reply, _ = talk.said.pop()
            talk.said.append((reply, self._player.format.observation(text)))
            ids = self._render_next(talk)
            if len(ids) + self._limits.tokens_per_turn <= self._limits.context_tokens:
                return ids
        talk.opening, talk.said = self._player.open(self._env, text, self._examples), []
        return chat.begin(talk.opening)

    def _render_next(self, talk: _Conversation) -> tuple[int, ...]:
        chat = self._player.chat
        if chat.strips:
            return chat.render(talk.ids, talk.opening, talk.said)
        end = () if talk.ids[-1] in chat.ends else (chat.end_of_reply,)
        return (*talk.ids, *end, *chat.follow(talk.said[-1][1]))

    async def _sample(self, talk: _Conversation, observation: Observation, room: int) -> str:
        """Sample a reply, and read the action in it."""
        player, valid = self._player, observation.valid_actions or ()
        request = SampleRequest(
            prompt=talk.ids,
            sampling=player.sampling,
            max_tokens=min(self._limits.tokens_per_turn, room),
            seed=derive(self._seed, "seat", talk.seat.name, len(talk.actions)),
        )
        reply = await player.sample(self._choose(talk), request, valid)
        text = player.chat.decode(reply.ids)
        self._note(talk, reply, text)
        read = player.format.read(text, valid) if reply.finish is FinishReason.STOP else None
        return read.actions[0] if read is not None and read.actions else _NO_MOVE

    def _note(self, talk: _Conversation, reply: Sampled, text: str) -> None:
        talk.ids = (*talk.ids, *reply.ids)
        talk.said.append((text, ()))
        talk.tokens += len(reply.ids)
        talk.version = max((talk.version, *reply.versions))

    def _choose(self, talk: _Conversation) -> Sampler:
        chosen = None
        if talk.seat.model is SeatModel.EARLIER:
            if self._player.earlier is None:
                raise StepRefused(NO_EARLIER)
            chosen = self._player.earlier(self._seed)
        talk.model = (SeatModel.POLICY if chosen is None else talk.seat.model).value
        return chosen or self._player.sampler
