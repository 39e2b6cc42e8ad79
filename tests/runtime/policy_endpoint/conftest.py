"""An endpoint with a sampler that says what it was given to say, and one on a port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from agym.dsl.model.recipe import TokenizerInit
from agym.runtime.agents.chat import Chat
from agym.runtime.backends.hf_models import ModelTokenizer, make_tokenizer
from agym.runtime.policy_endpoint.endpoint import PolicyEndpoint
from agym.runtime.policy_endpoint.fairness import FairQueue
from agym.runtime.policy_endpoint.policy import Policy, PolicyEpisode
from agym.runtime.policy_endpoint.server import serve_endpoint
from agym.runtime.protocols import FinishReason, Sampled, SampleRequest, SamplingSettings


@pytest.fixture(scope="session")
def tokenizer() -> ModelTokenizer:
    return ModelTokenizer(make_tokenizer(TokenizerInit(vocab=320), ["say 0 say 1 say 2 say 3 wrong"]))


@dataclass
class Speaker:
    """Says what it was given to say; the version and log-prob of each token identify the reply that it belongs to."""

    tokenizer: Any
    lines: Callable[[int, str], str]
    """By the number of the reply and the prompt's text."""
    requests: list[SampleRequest] = field(default_factory=list)
    hold: Callable[[int], Any] | None = None
    """What to await before the reply of this number."""

    async def sample(self, request: SampleRequest) -> Sampled:
        number = len(self.requests)
        self.requests.append(request)
        if self.hold is not None:
            await self.hold(number)
        ids = [*self.tokenizer.encode(self.lines(number, self.tokenizer.decode(request.prompt)))]
        ids = [*ids, request.sampling.stop_ids[0]][: request.max_tokens]
        is_whole = ids[-1] in request.sampling.stop_ids
        return Sampled(
            ids=tuple(ids),
            logprobs=tuple(-float(number + 1) for _ in ids),
            versions=(number,) * len(ids),
            finish=FinishReason.STOP if is_whole else FinishReason.LENGTH,
        )


@dataclass
class Bench:
    """An endpoint at a port, and an episode that is under way."""

    endpoint: PolicyEndpoint
    policy: Policy
    episode: PolicyEpisode
    speaker: Speaker
    chat: Chat
    openai: Any


Serve = Callable[..., Any]


@pytest.fixture
def serve(tokenizer: ModelTokenizer) -> Serve:
    @asynccontextmanager
    async def start(
        lines: Sequence[str] | Callable[[int, str], str], *, context_tokens: int = 4096, slots: int = 8, **more: Any
    ) -> AsyncIterator[Bench]:
        from openai import AsyncOpenAI

        say = lines if callable(lines) else (lambda number, prompt: lines[number % len(lines)])
        speaker, chat = Speaker(tokenizer, say), Chat(tokenizer)
        policy = Policy(
            speaker,  # type: ignore[arg-type]
            chat,
            sampling=SamplingSettings(),
            context_tokens=context_tokens,
            tokens_per_reply=more.pop("tokens_per_reply", 256),
            queue=FairQueue(slots),
            clock=lambda: 0.0,
            **{name: more.pop(name) for name in ("client_samples", "timeout_s") if name in more},
        )
        endpoint = PolicyEndpoint(models=more.pop("models", {}))
        async with serve_endpoint(endpoint):
            with endpoint.open_episode(policy, seed=7, **more) as episode:
                async with AsyncOpenAI(base_url=f"{endpoint.url}/v1", api_key=episode.key, max_retries=0) as client:
                    yield Bench(endpoint, policy, episode, speaker, chat, client)

    return start
