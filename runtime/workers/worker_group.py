"""All that the engine asks to be done, and which worker does it: the one seam between deciding and doing.

Where the workers live, and so how one is told to do something, is `launch/`'s business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from ...dsl.model.recipe import Environment, TaskSelection
from ...envs.protocol import TaskInfo
from ..agents.messages import Message
from ..data.dataset import Conversation
from ..protocols import (
    Floats,
    OptimizerSettings,
    Sampled,
    SampleRequest,
    TrainSequence,
    UpdateMetrics,
    UpdateSettings,
    ValueMetrics,
    ValueSettings,
)
from ..rollout.episode import Episode, Group, Task
from ..rollout.groups import EpisodeLimits, GroupRequest
from .learner_worker import LearnerWorker
from .rollout_worker import DemonstrationSettings, PlaySettings, RolloutWorker

__all__ = ["WorkerGroup"]

P = ParamSpec("P")
T = TypeVar("T")


class WorkerGroup(ABC):
    """A worker of each kind. A `play` may be under way while the learner is asked for something; never while another
    is, nor while weights go to the sampler."""

    @abstractmethod
    async def _rolling(
        self, work: Callable[Concatenate[RolloutWorker, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What the rollout worker does."""

    @abstractmethod
    async def _learning(self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the learner does."""

    async def _computing(
        self, work: Callable[Concatenate[LearnerWorker, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What the learner needs time and memory for."""
        return await self._learning(work, *args, **kwargs)

    # --- playing ---------------------------------------------------------------------------------------------------

    async def tasks(
        self, name: str, environment: Environment, selection: TaskSelection, seed: int
    ) -> tuple[TaskInfo, ...]:
        return await self._rolling(RolloutWorker.tasks, name, environment, selection, seed)

    async def play(
        self, orders: Sequence[GroupRequest], style: PlaySettings, seen: Callable[[Episode], None]
    ) -> list[Group]:
        return await self._rolling(RolloutWorker.play, orders, style, seen)

    async def demonstrate(
        self, tasks: Sequence[Task], style: DemonstrationSettings, limits: EpisodeLimits, seed: int
    ) -> list[Episode]:
        return await self._rolling(RolloutWorker.demonstrate, tasks, style, limits, seed)

    async def relabel(
        self, episodes: Sequence[Episode], style: DemonstrationSettings, limits: EpisodeLimits
    ) -> list[Episode]:
        """Demonstrations of the other goals that these have reached on their way."""
        return await self._rolling(RolloutWorker.relabel, episodes, style, limits)

    async def render(self, conversations: Sequence[Conversation], style: DemonstrationSettings) -> list[Episode]:
        return await self._rolling(RolloutWorker.render, conversations, style)

    async def openings(
        self, episodes: Sequence[tuple[Task, Sequence[Message]]], style: PlaySettings
    ) -> list[tuple[int, ...]]:
        """What each of them begins with, in tokens, with a solution told that the agent is not told."""
        return await self._rolling(RolloutWorker.openings, episodes, style)

    async def draw(self, requests: Sequence[SampleRequest], slots: int) -> list[Sampled]:
        """Replies, as in play, and nothing is done with them."""
        return await self._rolling(RolloutWorker.draw, requests, slots)

    # --- learning --------------------------------------------------------------------------------------------------

    async def optimise_by(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        """Sets the optimiser's constants; `fresh` also forgets what it has averaged."""
        await self._learning(LearnerWorker.optimise_by, settings, fresh=fresh)

    async def refer_to(self, model: Path | None) -> None:
        """What divergences are measured from: a model folder, or the model that the run started from."""
        await self._learning(LearnerWorker.refer_to, model)

    async def update(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        return await self._computing(LearnerWorker.update, sequences, settings)

    async def logprobs(
        self, sequences: Sequence[TrainSequence], temperature: float, *, reference: bool
    ) -> list[Floats]:
        return await self._computing(LearnerWorker.logprobs, sequences, temperature, reference=reference)

    async def values(self, sequences: Sequence[TrainSequence]) -> list[Floats]:
        """As of `Critic`; it begins as the policy stands when it is first asked, or as the plan's `critic.path`."""
        return await self._computing(LearnerWorker.values, sequences)

    async def update_critic(self, sequences: Sequence[TrainSequence], settings: ValueSettings) -> ValueMetrics:
        return await self._computing(LearnerWorker.update_critic, sequences, settings)

    async def new_ranker(self) -> None:
        """The next one begins as the reference."""
        await self._learning(LearnerWorker.new_ranker)

    async def rank(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        """Log-probs under the ranker, a policy that nobody plays."""
        return await self._computing(LearnerWorker.rank, sequences, temperature)

    async def update_ranker(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        return await self._computing(LearnerWorker.update_ranker, sequences, settings)

    # --- weights ---------------------------------------------------------------------------------------------------

    @abstractmethod
    async def sync(self, version: int) -> None:
        """The learner's weights to the sampler, proven there."""

    async def save(self, folder: Path) -> None:
        await self._learning(LearnerWorker.save, folder)

    async def load(self, folder: Path) -> None:
        await self._learning(LearnerWorker.load, folder)

    async def export(self, folder: Path) -> None:
        await self._learning(LearnerWorker.export, folder)

    @abstractmethod
    async def close(self) -> None: ...
