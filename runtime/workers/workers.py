"""The workers, plain classes: one that plays episodes, one that learns. Where they live is `launch/`'s business, and
`crew` is what the engine sees of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from ...dsl.model.algorithm import LossOn
from ...dsl.model.recipe import Agent, Environment, TaskSelection
from ...envs.protocol import TaskInfo
from ..agents.chat import Chat
from ..agents.messages import Message
from ..agents.speech import dressed
from ..data.dataset import Conversation
from ..data.demonstrations import Demonstrator, solved
from ..errors import RunError, StepRefused
from ..protocols import (
    Critic,
    Draw,
    Floats,
    Learner,
    OptimizerSettings,
    Probe,
    Sampled,
    Sampler,
    SampleRequest,
    SamplerError,
    Scorer,
    SyncError,
    TrainSequence,
    UpdateMetrics,
    UpdateSettings,
    ValueMetrics,
    ValueSettings,
    WeightUpdate,
)
from ..rollout.env_calls import Gates, Phases
from ..rollout.env_registry import Worlds, before_any_episode
from ..rollout.episode import Episode, Group, Task
from ..rollout.groups import Budgets, Order, Player, in_slots, play_groups
from ..rollout.task_sampler import chosen
from ..seeds import derive

__all__ = ["DemoStyle", "LearnerWorker", "PlayStyle", "RolloutWorker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayStyle:
    """How the episodes of one step are played, the same for all."""

    agent: Agent
    environments: Mapping[str, Environment]
    draw: Draw
    phases: Phases
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStyle:
    """How demonstrations are made."""

    agent: Agent
    environments: Mapping[str, Environment]
    phases: Phases
    slots: int
    noise: float
    loss_on: LossOn


class RolloutWorker:
    """Plays: one sampling engine and the environments around it."""

    def __init__(
        self,
        sampler: Sampler,
        chat: Chat,
        encode: Callable[[str], list[int]],
        worlds: Worlds,
        clock: Callable[[], float],
    ) -> None:
        self.sampler = sampler
        self._chat = chat
        self._encode = encode
        self._worlds = worlds
        self._clock = clock

    async def tasks(
        self, name: str, environment: Environment, selection: TaskSelection, seed: int
    ) -> tuple[TaskInfo, ...]:
        world = await self._worlds.get(name, environment)
        with before_any_episode(f"'{name}'"):
            return await chosen(world.client, selection, _listed(selection), name, seed)

    async def play(self, orders: Sequence[Order], style: PlayStyle, seen: Callable[[Episode], None]) -> list[Group]:
        agent = style.agent
        chat, form = dressed(agent, self._chat)
        player = Player(
            sampler=self.sampler,
            chat=chat,
            format=form,
            prompt=_text(agent.prompt),
            draw=replace(style.draw, stop_ids=(*style.draw.stop_ids, self._chat.end_of_reply)),
            phases=style.phases,
            gates=Gates.of(style.phases),
            clock=self._clock,
            memory=agent.memory,
            planning=agent.planning,
            reflection=agent.reflection,
            guided=agent.guided,
        )
        worlds = await self._worlds.all(style.environments)
        with _sampling():
            # what was cached while measuring or before a restart must not decide the last bits of what is sampled now
            await self.sampler.forget()
            return await play_groups(player, worlds, orders, style.slots, seen)

    async def demonstrate(self, tasks: Sequence[Task], style: DemoStyle, budgets: Budgets, seed: int) -> list[Episode]:
        worlds, demonstrator = await self._worlds.all(style.environments), self._demonstrator(style)
        jobs = [
            partial(demonstrator.attempt, worlds[task.environment], task, budgets, derive(seed, task.id, at))
            for at, task in enumerate(tasks)
        ]
        return await in_slots(jobs, style.slots)

    async def relabel(self, episodes: Sequence[Episode], style: DemoStyle, budgets: Budgets) -> list[Episode]:
        worlds, demonstrator = await self._worlds.all(style.environments), self._demonstrator(style)
        jobs = [
            partial(demonstrator.hindsight, worlds[episode.task.environment], episode, budgets) for episode in episodes
        ]
        return [each for found in await in_slots(jobs, style.slots) for each in found]

    async def render(self, conversations: Sequence[Conversation], style: DemoStyle) -> list[Episode]:
        demonstrator = self._demonstrator(style)
        return [demonstrator.render(each, style.agent.context_tokens) for each in conversations]

    async def openings(
        self, episodes: Sequence[tuple[Task, Sequence[Message]]], style: PlayStyle
    ) -> list[tuple[int, ...]]:
        worlds, (chat, _) = await self._worlds.all(style.environments), dressed(style.agent, self._chat)
        with before_any_episode(", ".join(style.environments)):
            return [
                chat.begin(await solved(worlds[task.environment], task, opening, style.phases.reset_timeout_s))
                for task, opening in episodes
            ]

    async def draw(self, requests: Sequence[SampleRequest], slots: int) -> list[Sampled]:
        ended = [
            replace(each, draw=replace(each.draw, stop_ids=(*each.draw.stop_ids, self._chat.end_of_reply)))
            for each in requests
        ]
        with _sampling():
            return await in_slots([partial(self.sampler.sample, each) for each in ended], slots)

    def _demonstrator(self, style: DemoStyle) -> Demonstrator:
        chat, form = dressed(style.agent, self._chat)
        return Demonstrator(
            chat=chat,
            encode=lru_cache(_COMMANDS)(self._encode),  # an expert says the same few things in all games
            format=form,
            prompt=_text(style.agent.prompt),
            phases=style.phases,
            gates=Gates.of(style.phases),
            noise=style.noise,
            loss_on=style.loss_on,
            clock=self._clock,
        )

    async def load(self, update: WeightUpdate) -> None:
        with _sampling():
            await self.sampler.load(update)

    async def rest(self) -> None:
        with _sampling():
            await self.sampler.rest()

    async def close(self) -> None:
        await self.sampler.close()
        await self._worlds.close()


_COMMANDS = 4096


@contextmanager
def _sampling() -> Iterator[None]:
    try:
        yield
    except SamplerError as error:
        # the weights are the learner's, and safe
        raise StepRefused(f"sampler: {error}; resume to start it anew") from error
    except SyncError as error:
        raise RunError(f"sync: {error}") from error


def _listed(selection: TaskSelection) -> tuple[str, ...] | None:
    text = _text(selection.file)
    if text is None:
        return None
    return tuple(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))


def _text(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"'{path}' cannot be read: {error}") from error


L = TypeVar("L", bound=Learner | Critic)


class _Beside(Generic[L]):
    """Who learns beside the policy: made when first asked for, and begins as things stand then."""

    def __init__(self, name: str, make: Callable[[], L] | None) -> None:
        self._name = name
        """Of its folder in a checkpoint."""
        self._make = make
        self._made: L | None = None
        self._optimizer: OptimizerSettings | None = None

    def get(self) -> L:
        if self._made is None:
            assert self._make is not None, f"a verified plan asks for a {self._name} only where it has one"
            self._made = self._make()
            if self._optimizer is not None:
                self._made.optimise_by(self._optimizer, fresh=False)
        return self._made

    def optimise_by(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        self._optimizer = settings
        if self._made is not None:
            self._made.optimise_by(settings, fresh=fresh)

    def save(self, folder: Path) -> None:
        if self._made is not None:
            self._made.save(folder / self._name)

    def load(self, folder: Path) -> None:
        if (folder / self._name).is_dir():
            self.get().load(folder / self._name)
        else:
            self.close()

    def close(self) -> None:
        """The next one is another."""
        if self._made is not None:
            self._made.close()
            self._made = None


class LearnerWorker:
    """Learns: the policy's learner, the reference it is held to and the critic beside it, if any."""

    def __init__(
        self,
        learner: Learner,
        reference: Callable[[Path | None], Scorer],
        vocab: int,
        tolerance: float,
        critic: Callable[[], Critic] | None = None,
        ranker: Callable[[Path | None], Learner] | None = None,
    ) -> None:
        """`critic` and `ranker` make one, the latter of a model folder; None where no stage of the plan has any."""
        self.learner = learner
        self._probe = probe_ids(vocab)
        self._make_reference = reference
        self._reference: Scorer | None = None
        self._referred: Path | None = None
        self._critic = _Beside("critic", critic)
        self._ranker = _Beside("ranker", None if ranker is None else lambda: ranker(self._referred))
        self._tolerance = tolerance

    def update(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        # what it had changed by then is not known: the checkpoint before is the one to resume from
        with _in_memory("update", RunError):
            return self.learner.update(sequences, settings)

    def logprobs(self, sequences: Sequence[TrainSequence], temperature: float, *, reference: bool) -> list[Floats]:
        with _in_memory("log-probs", StepRefused):
            return (self.reference if reference else self.learner).logprobs(sequences, temperature)

    def refer_to(self, model: Path | None) -> None:
        if model != self._referred:
            self._referred, self._reference = model, None

    @property
    def reference(self) -> Scorer:
        # made when first asked for: a run without a divergence term never pays for it
        if self._reference is None:
            self._reference = self._make_reference(self._referred)
        return self._reference

    def values(self, sequences: Sequence[TrainSequence]) -> list[Floats]:
        with _in_memory("values", StepRefused):
            return self.critic.values(sequences)

    def update_critic(self, sequences: Sequence[TrainSequence], settings: ValueSettings) -> ValueMetrics:
        with _in_memory("critic", RunError):
            return self.critic.update(sequences, settings)

    @property
    def critic(self) -> Critic:
        # after a stage of imitation it begins as the policy that imitates
        return self._critic.get()

    def rank(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        with _in_memory("ranking", StepRefused):
            return self.ranker.logprobs(sequences, temperature)

    def update_ranker(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        with _in_memory("critic", RunError):
            return self.ranker.update(sequences, settings)

    @property
    def ranker(self) -> Learner:
        # it begins as the reference of the stage that asks
        return self._ranker.get()

    def new_ranker(self) -> None:
        self._ranker.close()

    def optimise_by(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        """Of all that learn alike."""
        self.learner.optimise_by(settings, fresh=fresh)
        for each in (self._critic, self._ranker):
            each.optimise_by(settings, fresh=fresh)

    def save(self, folder: Path) -> None:
        self.learner.save(folder)
        for each in (self._critic, self._ranker):
            each.save(folder)

    def load(self, folder: Path) -> None:
        """The learner as it was saved, and the critic and the ranker, if there were any by then."""
        self.learner.load(folder)
        for each in (self._critic, self._ranker):
            each.load(folder)

    def export(self, folder: Path) -> None:
        self.learner.export(folder)

    def close(self) -> None:
        self.learner.close()
        for each in (self._critic, self._ranker):
            each.close()

    def handover(self, version: int) -> WeightUpdate:
        """The weights, and a probe with which whoever gets them can prove that they arrived."""
        with _in_memory("sync", StepRefused):
            logprobs = probe_logprobs(self.learner, self._probe)
        probe = Probe(ids=self._probe, logprobs=logprobs, tolerance=self._tolerance)
        return WeightUpdate(version=version, tensors=self.learner.weights(), probe=probe)


@contextmanager
def _in_memory(what: str, refusal: type[RunError]) -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        raise refusal(
            f"{what}: the learner is out of memory; resume with a smaller 'hardware.train.tokens_per_micro_batch' "
            f"({str(error)[:120]})"
        ) from error


def _out_of_memory(error: Exception) -> bool:
    # torch has a class of its own for a GPU's memory, and none for a CPU's
    return isinstance(error, MemoryError) or "out of memory" in str(error) or "allocate memory" in str(error)


def probe_ids(vocab: int, length: int = 48) -> tuple[int, ...]:
    """A sequence that touches tokens all over the vocabulary; the same in every run."""
    draws = np.random.Generator(np.random.PCG64(0)).integers(0, vocab, length)
    return tuple(int(token) for token in draws)


def probe_logprobs(scorer: Scorer, ids: Sequence[int]) -> Floats:
    """Of `ids[1:]`, each given all before it."""
    sequence = TrainSequence(
        ids=np.asarray(ids, np.int32),
        learn=np.arange(len(ids)) > 0,
        advantages=np.zeros(len(ids), np.float32),
    )
    return scorer.logprobs([sequence], 1.0)[0][1:]
