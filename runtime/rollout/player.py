"""Who plays an episode, and within which limits: everything but the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ...dsl.model.recipe import Memory, OnInvalid, Planning, Reflection, Rollout
from ...envs.protocol import EnvSpec, Observation
from ..agents.chat import Chat
from ..agents.formats import AgentFormat
from ..agents.messages import Message
from ..agents.prompts import add_actions, begin_next_task, prompt_version
from ..protocols import Sampled, Sampler, SampleRequest, SamplingSettings
from .constrained import sample_valid_action
from .env_calls import ConcurrencyLimits

__all__ = ["EpisodeLimits", "Player"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """Limits of an episode."""

    horizon: int
    tokens_per_turn: int
    context_tokens: int
    invalid_limit: int | None = None
    on_invalid: OnInvalid = OnInvalid.TELL
    observation_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """Sampler, format and settings of an agent; everything but the task."""

    sampler: Sampler
    chat: Chat
    format: AgentFormat
    prompt: str | None
    """The recipe's own system prompt."""
    sampling: SamplingSettings
    timeouts: Rollout
    concurrency: ConcurrencyLimits
    clock: Callable[[], float]
    memory: Memory = field(default_factory=Memory)
    planning: Planning | None = None
    reflection: Reflection | None = None
    guided: bool = False
    shows_actions: bool = False
    """An observation ends with the actions that the environment lists."""
    voice: Callable[[EnvSpec], tuple[Chat, AgentFormat]] | None = None
    """Chat and format for an environment with tools of its own, or where every text is a turn."""
    earlier: Callable[[int], Sampler | None] | None = None
    """Gives by a seed an earlier checkpoint, for seats that are not the agent's; None while nothing was saved."""

    def for_env(self, env: EnvSpec) -> Player:
        if self.voice is None or not (env.tools or env.free_text):
            return self
        chat, form = self.voice(env)
        stop_ids = tuple(dict.fromkeys((*self.sampling.stop_ids, *chat.ends)))
        return replace(self, chat=chat, format=form, sampling=replace(self.sampling, stop_ids=stop_ids))

    def open(self, env: EnvSpec, text: str, examples: Sequence[Message] = ()) -> tuple[Message, ...]:
        """Compose what stands before the first reply."""
        opening = self.format.opening(env.prompt, text, self.prompt)
        if not examples:
            return opening
        *system, user = opening
        return (*system, *begin_next_task(examples, user.content))

    def prompt_version(self, env: EnvSpec) -> str:
        return prompt_version(self.format.opening(env.prompt, "", self.prompt), self.chat.tools)

    def show(self, observation: Observation, limits: EpisodeLimits) -> str:
        text = self.chat.truncate(observation.text, limits.observation_tokens)
        return add_actions(text, observation.valid_actions) if self.shows_actions else text

    async def sample(self, sampler: Sampler, request: SampleRequest, valid: Sequence[str] = ()) -> Sampled:
        """Sample a reply; one of the valid actions, where the agent is guided by them."""
        if not (self.guided and valid):
            return await sampler.sample(request)
        return await sample_valid_action(
            sampler, request, [tuple(self.chat.reply(self.format.write(action))) for action in valid]
        )
