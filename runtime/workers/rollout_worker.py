"""The rollout worker: one sampling engine and the environments around it. A plain class; the launchers decide where it
lives.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from ...dsl.model.algorithm import LossOn
from ...dsl.model.recipe import Agent, Environment, Harness, Rollout, TaskSelection
from ...envs.protocol import EnvSpec, SeatModel, TaskInfo
from ..agents.chat import Chat
from ..agents.formats import chat_and_format
from ..agents.messages import Message
from ..agents.prompts import prompt_version
from ..data.dataset import Conversation
from ..data.demonstrations import Demonstrator, NoSolution, append_solution
from ..errors import RunError, SamplerLost, StepRefused, read_text
from ..harness.expert import ExpertSource
from ..harness.registry import load_harness
from ..harness.runner import HarnessRunner
from ..harness.running import RunningEndpoint
from ..policy_endpoint.policy import Policy
from ..protocols import (
    Sampled,
    Sampler,
    SampleRequest,
    SamplerError,
    SamplingSettings,
    SyncError,
    SyncProof,
    WeightUpdate,
)
from ..rollout.earlier import EarlierCheckpoints
from ..rollout.env_calls import ConcurrencyLimits, ConnectedEnv
from ..rollout.env_connections import OpenEnvs, stop_on_env_error
from ..rollout.episode import Episode, Group, Task
from ..rollout.groups import GroupRequest, play_groups, run_in_slots
from ..rollout.other_seats import NO_EARLIER
from ..rollout.player import EpisodeLimits, Player
from ..rollout.task_sampler import select_tasks
from ..seeds import derive
from .division import deals_work

__all__ = ["DemonstrationSettings", "PlaySettings", "RolloutWorker", "give_seeds", "show_through"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaySettings:
    """How the episodes of one step are played, the same for all."""

    agent: Agent
    environments: Mapping[str, Environment]
    sampling: SamplingSettings
    timeouts: Rollout
    slots: int
    tokens_per_turn: int = 512
    """As the recipe has it at this step; the longest reply to a harness."""
    total_step: int = 0
    """Steps of the run so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationSettings:
    """How demonstrations are made."""

    agent: Agent
    environments: Mapping[str, Environment]
    timeouts: Rollout
    slots: int
    noise: float
    loss_on: LossOn


def give_seeds(tasks: Sequence[Task], seed: int) -> list[tuple[Task, int]]:
    """Give each task that is demonstrated a seed by its place, whichever worker gets it."""
    return [(task, derive(seed, task.id, at)) for at, task in enumerate(tasks)]


class RolloutWorker:
    """Plays: one sampling engine and the environments around it."""

    def __init__(
        self,
        sampler: Sampler,
        chat: Chat,
        encode: Callable[[str], list[int]],
        envs: OpenEnvs,
        clock: Callable[[], float],
        earlier: EarlierCheckpoints | None = None,
    ) -> None:
        """`earlier` plays the seats of earlier checkpoints; None where there is no run to have any."""
        self.sampler = sampler
        self._chat = chat
        self._encode = encode
        self._envs = envs
        self._clock = clock
        self._earlier = earlier
        self._plays = 0
        """Under way; several where groups are handed out one by one, or weights change in flight."""
        self._concurrency = ConcurrencyLimits.of(Rollout())
        self._endpoint: RunningEndpoint | None = None
        """Started for the first harness."""
        self.receiving: Any = None
        """Weights under way from GPUs of a learner."""

    @property
    def has_earlier(self) -> bool:
        """Whether earlier checkpoints can play here."""
        return self._earlier is not None

    async def tasks(
        self, name: str, environment: Environment, selection: TaskSelection, seed: int, *, has_judge: bool = True
    ) -> tuple[TaskInfo, ...]:
        env = await self._envs.get(name, environment)
        with stop_on_env_error(f"'{name}'"):
            return await select_tasks(
                env.client, selection, _listed(selection), name, seed, has_judge=has_judge, remark=self._envs.remark
            )

    async def play(
        self,
        orders: Sequence[GroupRequest],
        style: PlaySettings,
        seen: Callable[[Episode], None],
        turn: AbstractAsyncContextManager[object] | None = None,
    ) -> list[Group]:
        """Play groups; each episode is played within `turn`, which several plays may share."""
        if not self._plays:
            self._concurrency = ConcurrencyLimits.of(style.timeouts, self.sampler.expecting)
        agent = style.agent
        chat, form = chat_and_format(agent, self._chat)
        player = Player(
            sampler=self.sampler,
            chat=chat,
            format=form,
            prompt=_text(agent.prompt),
            sampling=replace(style.sampling, stop_ids=(*style.sampling.stop_ids, *chat.ends)),
            timeouts=style.timeouts,
            concurrency=self._concurrency,
            clock=self._clock,
            memory=agent.memory,
            planning=agent.planning,
            reflection=agent.reflection,
            guided=agent.guided,
            shows_actions=bool(agent.show_actions),
            voice=lambda spec: chat_and_format(agent, self._chat, spec),
            earlier=None if self._earlier is None else self._earlier.choose,
        )
        envs = await self._envs.all(style.environments)
        played = {name: envs[name] for name in {each.task.environment for each in orders}}
        _check_seats(played, agent, has_earlier=self.has_earlier)
        play_one = None
        if agent.harness is not None:
            play_one = await self._harness_runner(
                agent, agent.harness, style.slots, sampling=style.sampling, tokens_per_reply=style.tokens_per_turn
            )
        with _sampling():
            if not self._plays:
                # what was cached while measuring or before a restart must not decide the last bits of what is sampled
                await self.sampler.forget()
                if self._earlier is not None:
                    await self._earlier.stand_at(style.total_step)
            self._plays += 1
            try:
                return await play_groups(player, envs, orders, style.slots, seen, turn, play_one)
            finally:
                self._plays -= 1

    async def _harness_runner(
        self, agent: Agent, harness: Harness, slots: int, *, sampling: SamplingSettings, tokens_per_reply: int
    ) -> HarnessRunner:
        if self._endpoint is None:
            self._endpoint = await RunningEndpoint.start()
        policy = Policy(
            self.sampler,
            self._chat,
            sampling=sampling,
            context_tokens=agent.context_tokens,
            tokens_per_reply=tokens_per_reply,
            queue=self._endpoint.queue_for(slots),
            clock=self._clock,
            thinking=agent.thinking,
            timeout_s=harness.timeout_s,
        )
        policy.check()
        return HarnessRunner(
            settings=harness,
            endpoint=self._endpoint.endpoint,
            policy=policy,
            peers=self._endpoint.peers,
            environ=os.environ,
            harness=None if harness.use is None else load_harness(harness.use),
        )

    async def prompts(self, agent: Agent, environments: Mapping[str, Environment]) -> list[tuple[int, ...]]:
        """A prompt for each environment, without its first observation."""
        return [chat.begin(opening) for _, chat, opening in await self._openings(agent, environments)]

    async def prompt_versions(self, agent: Agent, environments: Mapping[str, Environment]) -> dict[str, str]:
        """The version of each environment's prompt."""
        found = await self._openings(agent, environments)
        return {name: prompt_version(opening, chat.tools) for name, chat, opening in found}

    async def _openings(
        self, agent: Agent, environments: Mapping[str, Environment]
    ) -> list[tuple[str, Chat, tuple[Message, ...]]]:
        own, found = _text(agent.prompt), []
        for name, env in (await self._envs.all(environments)).items():
            chat, form = chat_and_format(agent, self._chat, env.spec)
            found.append((name, chat, form.opening(env.spec.prompt, "", own)))
        return found

    @deals_work
    async def demonstrate(
        self, tasks: Sequence[tuple[Task, int]], style: DemonstrationSettings, limits: EpisodeLimits
    ) -> list[Episode | None]:
        """Play a demonstration of each task with its seed; None for one that the expert has no solution for. Under a
        harness the expert replies to its requests."""
        envs = await self._envs.all(style.environments)
        shows = await self._find_shows(style, envs)
        jobs = [
            partial(_show_task, shows[name], envs[name], task, limits, seed)
            for task, seed in tasks
            for name in [task.environment]
        ]
        return await run_in_slots(jobs, style.slots)

    async def _find_shows(self, style: DemonstrationSettings, envs: Mapping[str, ConnectedEnv]) -> dict[str, _Show]:
        """Find how the expert of each environment shows a task."""
        own = {name: self._demonstrator(style, env.spec) for name, env in envs.items()}
        agent = style.agent
        if agent.harness is None:
            return {name: each.attempt for name, each in own.items()}
        _check_seats(envs, agent, has_earlier=False)
        runner = await self._harness_runner(
            agent, agent.harness, style.slots, sampling=SamplingSettings(), tokens_per_reply=agent.context_tokens
        )
        return {name: show_through(runner, each) for name, each in own.items()}

    @deals_work
    async def relabel(
        self, episodes: Sequence[Episode], style: DemonstrationSettings, limits: EpisodeLimits
    ) -> list[list[Episode]]:
        """Return each episode as demonstrations of other tasks that it solved."""
        envs = await self._envs.all(style.environments)
        demonstrators = {name: self._demonstrator(style, env.spec) for name, env in envs.items()}
        jobs = [
            partial(demonstrators[name].hindsight, envs[name], episode, limits)
            for episode in episodes
            for name in [episode.task.environment]
        ]
        return await run_in_slots(jobs, style.slots)

    @deals_work
    async def render(self, conversations: Sequence[Conversation], style: DemonstrationSettings) -> list[Episode]:
        demonstrator = self._demonstrator(style)
        return [demonstrator.render(each, style.agent.context_tokens) for each in conversations]

    @deals_work
    async def openings(
        self, episodes: Sequence[tuple[Task, Sequence[Message]]], style: PlaySettings
    ) -> list[tuple[int, ...]]:
        envs = await self._envs.all(style.environments)
        chats = {name: chat_and_format(style.agent, self._chat, env.spec)[0] for name, env in envs.items()}
        with stop_on_env_error(", ".join(style.environments)):
            return [
                chats[name].begin(await append_solution(envs[name], task, opening, style.timeouts.reset_timeout_s))
                for task, opening in episodes
                for name in [task.environment]
            ]

    @deals_work
    async def sample_replies(self, requests: Sequence[SampleRequest], style: PlaySettings) -> list[Sampled]:
        ended = [
            replace(each, sampling=replace(each.sampling, stop_ids=(*each.sampling.stop_ids, *self._chat.ends)))
            for each in requests
        ]
        with _sampling():
            return await run_in_slots([partial(self.sampler.sample, each) for each in ended], style.slots)

    def _demonstrator(self, style: DemonstrationSettings, env: EnvSpec | None = None) -> Demonstrator:
        chat, form = chat_and_format(style.agent, self._chat, env)
        return Demonstrator(
            chat=chat,
            encode=lru_cache(_COMMANDS)(self._encode),  # an expert says the same few things in all games
            format=form,
            prompt=_text(style.agent.prompt),
            shows_actions=bool(style.agent.show_actions),
            timeouts=style.timeouts,
            concurrency=ConcurrencyLimits.of(style.timeouts),
            noise=style.noise,
            loss_on=style.loss_on,
            clock=self._clock,
        )

    async def load(self, update: WeightUpdate) -> SyncProof:
        with _sampling():
            return await self.sampler.load(update)

    async def sleep(self) -> None:
        with _sampling():
            await self.sampler.sleep()

    async def close(self) -> None:
        if self._endpoint is not None:
            await self._endpoint.close()
        if self._earlier is not None:
            await self._earlier.close()
        await self.sampler.close()
        await self._envs.close()


_Show = Callable[[ConnectedEnv, Task, EpisodeLimits, int], Awaitable[Episode]]


def show_through(runner: HarnessRunner, demonstrator: Demonstrator) -> _Show:
    expert = ExpertSource(
        choose_actions=demonstrator.choose_actions,
        write_step=demonstrator.format.write_step,
        encode=demonstrator.encode_reply,
        loss_on=demonstrator.loss_on,
    )
    playing = replace(runner, expert=expert)
    return lambda env, task, limits, seed: playing(demonstrator, env, task, 0, limits, seed)


async def _show_task(show: _Show, env: ConnectedEnv, task: Task, limits: EpisodeLimits, seed: int) -> Episode | None:
    try:
        return await show(env, task, limits, seed)
    except NoSolution:
        return None


_COMMANDS = 4096


@contextmanager
def _sampling() -> Iterator[None]:
    try:
        yield
    except SamplerError as error:
        # the learner has the weights, so they are safe
        raise SamplerLost(f"sampler: {error}; resume to start it anew") from error
    except SyncError as error:
        raise RunError(f"sync: {error}") from error


def _check_seats(envs: Mapping[str, ConnectedEnv], agent: Agent, *, has_earlier: bool) -> None:
    """Refuse environments with seats that no model here can play."""
    for name, env in envs.items():
        if SeatModel.EARLIER in env.spec.models and not has_earlier:
            raise StepRefused(f"environment '{name}': {NO_EARLIER}")
        if env.spec.models and agent.harness is not None:
            raise StepRefused(
                f"environment '{name}' has other seats played in the form of our own agent, which 'agent.harness' "
                "replaces; serve the opponent by 'agym serve', and write its address as the option 'opponent', "
                "{url: ..., model: ...}"
            )


def _listed(selection: TaskSelection) -> tuple[str, ...] | None:
    text = _text(selection.file)
    if text is None:
        return None
    return tuple(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))


def _text(path: str | None) -> str | None:
    return None if path is None else read_text(path)
