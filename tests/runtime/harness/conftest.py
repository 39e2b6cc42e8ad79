"""A run's endpoint with a sampler of scripted replies, and episodes of the echo world played by commands."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from agym.dsl.model.algorithm import LossOn
from agym.dsl.model.recipe import Agent, Format, Harness, HarnessLimits, Rollout, TokenizerInit
from agym.envs.clients.client import InlineEnv
from agym.envs.protocol import Env
from agym.runtime.agents.chat import Chat
from agym.runtime.agents.formats import format_for
from agym.runtime.backends.hf_models import ModelTokenizer, make_tokenizer
from agym.runtime.data.demonstrations import Demonstrator
from agym.runtime.harness.registry import Harness as Play
from agym.runtime.harness.runner import HarnessRunner
from agym.runtime.harness.running import RunningEndpoint
from agym.runtime.policy_endpoint.policy import Policy
from agym.runtime.protocols import SamplingSettings
from agym.runtime.rollout.env_calls import ConcurrencyLimits, ConnectedEnv
from agym.runtime.rollout.episode import Episode, Task
from agym.runtime.rollout.player import EpisodeLimits, Player
from agym.runtime.workers.rollout_worker import show_through

from ..policy_endpoint.conftest import Speaker

HORIZON = 6
TASK = Task(environment="echo", id="train-0", seed=1)


def left_behind(mark: str) -> list[str]:
    """The processes with a word on their command line; what was killed has a moment to be gone."""
    deadline = time.monotonic() + 60
    while (found := _marked(mark.encode())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _marked(mark: bytes) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [file.parent.name] if mark in file.read_bytes().split(b"\0") else []
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Episodes of one endpoint."""

    speaker: Speaker
    running: RunningEndpoint
    policy: Policy
    player: Player
    env: ConnectedEnv

    async def play(
        self,
        command: Sequence[str] | None = None,
        *,
        harness: Play | None = None,
        env: type[Env] | None = None,
        **settings: Any,
    ) -> Episode:
        """Play one episode without a second try."""
        limits = HarnessLimits(**settings.pop("limits", {}))
        world = self.env if env is None else replace(self.env, client=InlineEnv(env))
        runner = HarnessRunner(
            settings=Harness(
                use="mine" if harness else None,
                command=command and tuple(command),
                limits=limits,
                **{"timeout_s": 300.0, **settings},
            ),
            endpoint=self.running.endpoint,
            policy=self.policy,
            peers=self.running.peers,
            environ=os.environ,
            harness=harness,
        )
        budgets = EpisodeLimits(horizon=HORIZON, tokens_per_turn=256, context_tokens=8192)
        return await runner(self.player, world, TASK, 0, budgets, 5)

    async def show(
        self,
        harness: Play | None = None,
        *,
        command: Sequence[str] | None = None,
        env: Callable[[], Any] | None = None,
        seed: int = 5,
        **settings: Any,
    ) -> Episode:
        """Let the expert play one episode in the hands of an agent."""
        world = self.env
        if env is not None:
            client = InlineEnv(env)
            world = ConnectedEnv(name="echo", client=client, spec=await client.spec())
        chat = self.player.chat
        demonstrator = Demonstrator(
            chat=chat,
            format=self.player.format,
            prompt=None,
            shows_actions=False,
            timeouts=self.player.timeouts,
            concurrency=self.player.concurrency,
            clock=lambda: 0.0,
            **{"encode": chat.encode, "noise": 0.0, "loss_on": LossOn.EXPERT, **settings},
        )
        runner = HarnessRunner(
            settings=Harness(use="mine" if harness else None, command=command and tuple(command), timeout_s=300.0),
            endpoint=self.running.endpoint,
            policy=self.policy,
            peers=self.running.peers,
            environ=os.environ,
            harness=harness,
        )
        limits = EpisodeLimits(horizon=HORIZON, tokens_per_turn=256, context_tokens=8192)
        return await show_through(runner, demonstrator)(world, TASK, limits, seed)


OpenScene = Callable[[Callable[[int, str], str]], AbstractAsyncContextManager[Scene]]


@pytest.fixture
def scene(echo: Any) -> OpenScene:
    @asynccontextmanager
    async def open_scene(lines: Callable[[int, str], str]) -> AsyncIterator[Scene]:
        tokenizer = ModelTokenizer(make_tokenizer(TokenizerInit(vocab=320), ["say 0 say 1 say 2 say 3 wrong"]))
        speaker: Any = Speaker(tokenizer, lines)
        running, timeouts, client = await RunningEndpoint.start(), Rollout(retries=0), InlineEnv(echo)
        policy = Policy(
            speaker,
            Chat(tokenizer),
            sampling=SamplingSettings(),
            context_tokens=8192,
            tokens_per_reply=256,
            queue=running.queue_for(4),
            clock=lambda: 0.0,
        )
        player = Player(
            sampler=speaker,
            chat=Chat(tokenizer),
            format=format_for(Agent(format=Format.PLAIN)),
            prompt=None,
            sampling=SamplingSettings(),
            timeouts=timeouts,
            concurrency=ConcurrencyLimits.of(timeouts),
            clock=lambda: 0.0,
        )
        env = ConnectedEnv(name="echo", client=client, spec=echo.spec)
        try:
            yield Scene(speaker=speaker, running=running, policy=policy, player=player, env=env)
        finally:
            await running.close()
            await client.close()

    return open_scene
