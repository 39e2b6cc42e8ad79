"""The policy as a model of the endpoint, and what is kept of one episode that asks it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ...envs.errors import EnvFault
from ...envs.protocol import ToolSchema
from ..agents.chat import Chat
from ..errors import RunError
from ..protocols import FinishReason, Sampled, Sampler, SampleRequest, SamplerError, SamplingSettings
from ..seeds import derive
from .api_errors import (
    ApiError,
    bad_request,
    context_too_long,
    episode_ended,
    nothing_to_show,
    out_of_requests,
    timed_out,
)
from .conversations import Conversations, Line, Place
from .fairness import FairQueue
from .messages import CallMade, ChatMessage, write_message
from .voice import ReadReply, Voice

__all__ = [
    "Answer",
    "EpisodeLimit",
    "Exchange",
    "Expert",
    "ExpertReply",
    "Policy",
    "PolicyEpisode",
    "PolicyRequest",
    "Usage",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """What a client asks for, whichever API it speaks."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSchema, ...] = ()
    calls: bool = True
    """Whether calls are read; not under `tool_choice: none`."""
    forced: str | None = None
    """Name of the tool that the reply must call, empty for any."""
    parallel: bool = True
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as OpenAI counts them: each request's prompt is counted whole."""

    requests: int = 0
    prompt: int = 0
    held: int = 0
    """Of the prompts, tokens that the episode's conversations held already."""
    completion: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            requests=self.requests + other.requests,
            prompt=self.prompt + other.prompt,
            held=self.held + other.held,
            completion=self.completion + other.completion,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply and what it cost."""

    number: int
    reply: ReadReply
    finish: str
    """`stop`, `length` or `tool_calls`."""
    usage: Usage
    sampled: Sampled
    spell: Callable[[int], str]
    """Text of a token."""


@dataclass(slots=True, kw_only=True, eq=False)
class Exchange:
    """A reply in its line, and the messages after it as far as a later request contained them."""

    line: Line
    start: int
    end: int
    text: str
    said: str
    """What the client was given, as one text."""
    seconds: float
    observation: str = ""
    is_noise: bool = False
    """An expert's reply that is no part of its solution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertReply:
    """What an expert replies in the policy's place."""

    text: str
    calls: tuple[CallMade, ...] = ()
    is_noise: bool = False


class Expert(Protocol):
    """Answers an episode's requests in the policy's place: the replies are to be imitated."""

    async def reply(self, request: PolicyRequest) -> ExpertReply | None:
        """Return None where there is nothing more to show. May raise `EnvFault` and `RunError`."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """Encode words to imitate; raise `RunError` for one that the model does not know."""
        ...


class EpisodeLimit(str):
    """Which limit an episode has run into."""

    __slots__ = ()


_CONTEXT, _REQUESTS = EpisodeLimit("context"), EpisodeLimit("requests")


@dataclass(slots=True, kw_only=True, eq=False)
class PolicyEpisode:
    """What the endpoint holds of one episode."""

    key: str
    seed: int
    max_requests: int | None = None
    conversations: Conversations = field(default_factory=Conversations)
    exchanges: list[Exchange] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    limit: EpisodeLimit | None = None
    """Set once the endpoint refused a request for it."""
    ended: bool = False
    expert: Expert | None = None
    """Replies in the policy's place, where a demonstration is made."""
    failure: asyncio.Future[None] | None = None
    """Gets the exception of a sampler or an expert that failed, for whoever plays the episode."""
    num_asked: int = 0

    def count_request(self) -> int:
        """Return the number of a request; raise where no more are allowed."""
        if self.ended:
            raise episode_ended()
        if self.max_requests is not None and self.num_asked >= self.max_requests:
            self.limit = _REQUESTS
            raise out_of_requests(self.max_requests)
        self.num_asked += 1
        return self.num_asked - 1

    def fail(self, error: Exception) -> None:
        """Report a failure to whoever plays the episode."""
        if self.failure is not None and not self.failure.done():
            self.failure.set_exception(error)


class Policy:
    """The run's own sampler, its chat, and the settings that decide how it is asked."""

    def __init__(
        self,
        sampler: Sampler,
        chat: Chat,
        *,
        sampling: SamplingSettings,
        context_tokens: int,
        tokens_per_reply: int,
        queue: FairQueue,
        clock: Callable[[], float],
        thinking: bool = True,
        client_samples: bool = False,
        timeout_s: float = 600.0,
    ) -> None:
        """Without `client_samples` the temperature, `top_p` and seed of requests change nothing: what is trained on is
        sampled as the recipe says."""
        self._sampler, self._chat = sampler, chat
        self._sampling, self._client_samples = sampling, client_samples
        self._context_tokens, self._tokens_per_reply = context_tokens, tokens_per_reply
        self._queue, self._clock, self._thinking, self._timeout_s = queue, clock, thinking, timeout_s
        self._voices: dict[str, Voice] = {}

    def check(self) -> None:
        """Raise `TemplateError` where the chat template cannot be gone on from."""
        self._voice((), "")

    def forget(self, key: str) -> None:
        """Drop the count of an episode that has ended."""
        self._queue.forget(key)

    async def answer(self, episode: PolicyEpisode, request: PolicyRequest) -> Answer:
        number = episode.count_request()
        tools = _name_tools(request.tools)
        voice = self._voice(request.tools, tools)
        with episode.conversations.reserve(request.messages, tools, voice.render) as place:
            forced = voice.force_call(request.forced or None) if request.forced is not None else ()
            prompt = (*place.prompt, *forced)
            started = self._clock()
            asked = self._request(episode, number, request, prompt)
            if episode.expert is None:
                sampled, is_noise = await self._sample(episode, asked), False
            else:
                sampled, is_noise = await self._demonstrate(episode, episode.expert, request, voice, forced, asked)
            if episode.ended:  # nothing that came later is part of it
                raise episode_ended()
            answer = self._take(episode, request, voice, place, forced, sampled, self._clock() - started, number)
            episode.exchanges[-1].is_noise = is_noise
            return answer

    def _voice(self, tools: Sequence[ToolSchema], name: str) -> Voice:
        if name not in self._voices:
            if len(self._voices) >= _VOICES_REMEMBERED:
                del self._voices[next(iter(self._voices))]
            self._voices[name] = Voice(self._chat, tools, thinking=self._thinking)
        return self._voices[name]

    def _request(
        self, episode: PolicyEpisode, number: int, request: PolicyRequest, prompt: tuple[int, ...]
    ) -> SampleRequest:
        room = self._context_tokens - len(prompt)
        if room < 1:
            episode.limit = _CONTEXT
            raise context_too_long(len(prompt) + 1, self._context_tokens)
        sampling = replace(
            self._sampling,
            stop_ids=tuple(dict.fromkeys((*self._sampling.stop_ids, *self._chat.ends))),
            stop_texts=(*self._sampling.stop_texts, *request.stop),
        )
        seed = derive(episode.seed, "request", number)
        if self._client_samples:
            sampling = replace(
                sampling,
                temperature=sampling.temperature if request.temperature is None else request.temperature,
                top_p=sampling.top_p if request.top_p is None else request.top_p,
            )
            seed = seed if request.seed is None else derive(request.seed, "client")
        most = min(self._tokens_per_reply, room)
        max_tokens = most if request.max_tokens is None else min(request.max_tokens, most)
        return SampleRequest(prompt=prompt, sampling=sampling, max_tokens=max_tokens, seed=seed)

    async def _sample(self, episode: PolicyEpisode, request: SampleRequest) -> Sampled:
        try:
            async with asyncio.timeout(self._timeout_s), self._queue.turn(episode.key):
                if episode.ended:  # while it waited
                    raise episode_ended()
                return await self._sampler.sample(request)
        except TimeoutError:
            raise timed_out(self._timeout_s) from None
        except ValueError as error:
            raise bad_request(str(error)) from None
        except SamplerError as error:
            log.error("the sampling engine failed: %s", error)
            episode.fail(error)
            raise ApiError(500, "the sampling engine failed", kind="server_error") from error

    async def _demonstrate(
        self,
        episode: PolicyEpisode,
        expert: Expert,
        request: PolicyRequest,
        voice: Voice,
        forced: Sequence[int],
        asked: SampleRequest,
    ) -> tuple[Sampled, bool]:
        """Return the expert's reply as if it had been sampled, and whether it is noise."""
        try:
            reply = await expert.reply(request)
            text = "" if reply is None else voice.write(reply.text, reply.calls)
            begun = voice.chat.decode(forced) if forced else ""
            if reply is None or not text.startswith(begun):  # a tool that must be called, and the expert does not
                episode.limit = _REQUESTS
                raise nothing_to_show()
            ids = (*expert.encode(text[len(begun) :]), voice.chat.end_of_reply)
        except (EnvFault, RunError) as error:
            episode.fail(error)
            raise ApiError(500, "the expert failed", kind="server_error") from error
        if len(asked.prompt) + len(ids) > self._context_tokens:
            episode.limit = _CONTEXT
            raise context_too_long(len(asked.prompt) + len(ids), self._context_tokens)
        return (
            Sampled(ids=ids, logprobs=(0.0,) * len(ids), versions=(-1,) * len(ids), finish=FinishReason.STOP),
            reply.is_noise,
        )

    def _take(
        self,
        episode: PolicyEpisode,
        request: PolicyRequest,
        voice: Voice,
        place: Place,
        forced: Sequence[int],
        sampled: Sampled,
        seconds: float,
        number: int,
    ) -> Answer:
        text = voice.chat.decode((*forced, *sampled.ids))
        # the recipe's own stop texts belong to what is said, as a closing tag does
        cut = min((at for stop in request.stop if (at := text.find(stop)) >= 0), default=len(text))
        is_cut = sampled.finish is FinishReason.LENGTH
        # a reply that does not end is no call
        reply = voice.read(text[:cut], with_calls=request.calls and not is_cut, parallel=request.parallel)
        line, start, end = episode.conversations.commit(place, forced, sampled, reply.message)
        _note_observation(episode.exchanges, place)
        episode.exchanges.append(
            Exchange(
                line=line, start=start, end=end, text=text, said=write_message(reply.text, reply.calls), seconds=seconds
            )
        )
        usage = Usage(requests=1, prompt=start, held=place.held, completion=len(sampled.ids))
        episode.usage += usage
        finish = "length" if is_cut else "tool_calls" if reply.calls else "stop"
        return Answer(
            number=number, reply=reply, finish=finish, usage=usage, sampled=sampled, spell=voice.chat.decode_token
        )


_VOICES_REMEMBERED = 64


def _name_tools(tools: Sequence[ToolSchema]) -> str:
    """Name a set of tools by its content; empty for none."""
    plain: list[Mapping[str, Any]] = [
        {"name": each.name, "description": each.description, "parameters": each.parameters} for each in tools
    ]
    return json.dumps(plain, sort_keys=True) if plain else ""


def _note_observation(exchanges: Sequence[Exchange], place: Place) -> None:
    """Note what followed the reply that this request goes on from."""
    before = next((each for each in reversed(exchanges) if each.line is place.line), None)
    if before is None and place.line.parent is not None:
        parent = place.line.parent
        before = next((each for each in exchanges if each.line is parent and each.end == place.held), None)
    if before is not None and not before.observation:
        before.observation = "\n".join(message.text for message in place.messages[place.known :])
