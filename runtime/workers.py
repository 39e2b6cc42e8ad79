"""The workers, plain classes: one that plays episodes, one that learns. Where they live is `launch/`'s business.

`Crew` is what the engine sees of them: the one seam between deciding what is done and doing it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Protocol

import numpy as np

from ..dsl.algorithm import LossOn
from ..dsl.recipe import Environment, Format, TaskSelection
from ..envs.errors import EnvError
from ..envs.protocol import TaskInfo
from .agents.formats import FORMATS
from .asking import Gates, Phases, World
from .dataset import Conversation
from .demonstrate import Demonstrator
from .episode import Episode, Group, Task
from .errors import RunError, StepRefused
from .ports import (
    Draw,
    Floats,
    Learner,
    OptimizerSettings,
    Probe,
    Sampler,
    SamplerError,
    Scorer,
    SyncError,
    TrainSequence,
    UpdateMetrics,
    UpdateSettings,
    WeightUpdate,
)
from .rendering import Chat
from .rollout import Budgets, Order, Player, in_slots, play_groups
from .seeds import derive
from .tasks import chosen
from .worlds import Worlds

__all__ = ["Crew", "DemoStyle", "LearnerWorker", "PlayStyle", "RolloutWorker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayStyle:
    """How the episodes of one step are played, the same for all."""

    format: Format
    prompt: str | None
    """A file with the system prompt, instead of the format's and the environment's own."""
    environments: Mapping[str, Environment]
    draw: Draw
    phases: Phases
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStyle:
    """How demonstrations are made."""

    format: Format
    prompt: str | None
    environments: Mapping[str, Environment]
    phases: Phases
    slots: int
    noise: float
    loss_on: LossOn
    context_tokens: int


class Crew(Protocol):
    """All that the engine asks to be done. A `play` may be under way while the learner is asked for something; never
    while another is, nor while weights go to the sampler."""

    async def tasks(
        self, name: str, environment: Environment, selection: TaskSelection, seed: int
    ) -> tuple[TaskInfo, ...]: ...

    async def play(self, orders: Sequence[Order], style: PlayStyle, seen: Callable[[Episode], None]) -> list[Group]: ...

    async def demonstrate(
        self, tasks: Sequence[Task], style: DemoStyle, budgets: Budgets, seed: int
    ) -> list[Episode]: ...

    async def render(self, conversations: Sequence[Conversation], style: DemoStyle) -> list[Episode]: ...

    async def optimise_by(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        """Sets the optimiser's constants; `fresh` also forgets what it has averaged."""
        ...

    async def refer_to(self, model: Path | None) -> None:
        """What divergences are measured from: a model folder, or the model that the run started from."""
        ...

    async def update(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics: ...

    async def logprobs(
        self, sequences: Sequence[TrainSequence], temperature: float, *, reference: bool
    ) -> list[Floats]: ...

    async def sync(self, version: int) -> None:
        """The learner's weights to the sampler, proven there."""
        ...

    async def save(self, folder: Path) -> None: ...

    async def load(self, folder: Path) -> None: ...

    async def export(self, folder: Path) -> None: ...

    async def close(self) -> None: ...


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
        with _environments(name):
            world = await self._worlds.get(name, environment)
            return await chosen(world.client, selection, _listed(selection), name, seed)

    async def play(self, orders: Sequence[Order], style: PlayStyle, seen: Callable[[Episode], None]) -> list[Group]:
        player = Player(
            sampler=self.sampler,
            chat=self._chat,
            format=FORMATS[style.format],
            prompt=_text(style.prompt),
            draw=replace(style.draw, stop_ids=(*style.draw.stop_ids, self._chat.end_of_reply)),
            phases=style.phases,
            gates=Gates.of(style.phases),
            clock=self._clock,
        )
        worlds = await self._all_worlds(style.environments)
        with _sampling():
            # what was cached while measuring or before a restart must not decide the last bits of what is sampled now
            await self.sampler.forget()
            return await play_groups(player, worlds, orders, style.slots, seen)

    async def demonstrate(self, tasks: Sequence[Task], style: DemoStyle, budgets: Budgets, seed: int) -> list[Episode]:
        worlds, demonstrator = await self._all_worlds(style.environments), self._demonstrator(style)
        jobs = [
            partial(demonstrator.attempt, worlds[task.environment], task, budgets, derive(seed, task.id, at))
            for at, task in enumerate(tasks)
        ]
        return await in_slots(jobs, style.slots)

    async def render(self, conversations: Sequence[Conversation], style: DemoStyle) -> list[Episode]:
        demonstrator = self._demonstrator(style)
        return [demonstrator.render(each, style.context_tokens) for each in conversations]

    def _demonstrator(self, style: DemoStyle) -> Demonstrator:
        return Demonstrator(
            chat=self._chat,
            encode=lru_cache(_COMMANDS)(self._encode),  # an expert says the same few things in all games
            format=FORMATS[style.format],
            prompt=_text(style.prompt),
            phases=style.phases,
            gates=Gates.of(style.phases),
            noise=style.noise,
            loss_on=style.loss_on,
            clock=self._clock,
        )

    async def _all_worlds(self, environments: Mapping[str, Environment]) -> dict[str, World]:
        with _environments(", ".join(environments)):
            return await self._worlds.all(environments)

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
def _environments(names: str) -> Iterator[None]:
    """What an environment says before any episode is for the operator to hear."""
    try:
        yield
    except EnvError as error:
        raise StepRefused(f"environment {names}: {error}") from error


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


class LearnerWorker:
    """Learns: the policy's learner, and the reference it is held to, if any."""

    def __init__(
        self, learner: Learner, reference: Callable[[Path | None], Scorer], vocab: int, tolerance: float
    ) -> None:
        self.learner = learner
        self._probe = probe_ids(vocab)
        self._make_reference = reference
        self._reference: Scorer | None = None
        self._referred: Path | None = None
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
