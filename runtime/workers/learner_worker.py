"""The learner worker: the policy that is trained, the reference, and the critic or ranker trained with it.

A plain class; the launchers decide where it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...dsl.model.algorithm import Importance
from ..errors import LearnerLost, RunError, StepRefused
from ..protocols import (
    Floats,
    Learner,
    OptimizerSettings,
    Probe,
    ProbeLimits,
    Scorer,
    TrainSequence,
    UpdateMetrics,
    UpdateSettings,
    ValueLearner,
    ValueMetrics,
    ValueSettings,
    WeightUpdate,
)
from .division import divides_sequences
from .weight_sync import ProbeText

__all__ = ["LearnerWorker", "name_lost_rank"]

L = TypeVar("L", bound=Learner | ValueLearner)


class _Auxiliary(Generic[L]):
    """A model trained alongside the policy: made when first asked for, from the state of that moment."""

    def __init__(self, name: str, make: Callable[[], L] | None) -> None:
        self._name = name
        """Name of its folder in a checkpoint."""
        self._make = make
        self._made: L | None = None
        self._optimizer: OptimizerSettings | None = None

    def get(self) -> L:
        if self._made is None:
            assert self._make is not None, f"a verified plan asks for a {self._name} only where it has one"
            self._made = self._make()
            if self._optimizer is not None:
                self._made.set_optimizer(self._optimizer, fresh=False)
        return self._made

    def set_optimizer(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        self._optimizer = settings
        if self._made is not None:
            self._made.set_optimizer(settings, fresh=fresh)

    def save(self, folder: Path) -> None:
        if self._made is not None:
            self._made.save(folder / self._name)

    def load(self, folder: Path) -> None:
        if (folder / self._name).is_dir():
            self.get().load(folder / self._name)
        else:
            self.close()

    def close(self) -> None:
        """Drop it; the next use makes another."""
        if self._made is not None:
            self._made.close()
            self._made = None


class LearnerWorker:
    """Holds the policy's learner, its reference, and the critic trained with it, if any."""

    def __init__(
        self,
        learner: Learner,
        reference: Callable[[Path | None], Scorer],
        limits: ProbeLimits,
        critic: Callable[[], ValueLearner] | None = None,
        ranker: Callable[[Path | None], Learner] | None = None,
        notes: list[str] | None = None,
    ) -> None:
        """`critic` and `ranker` make one, the latter from a model folder; None if no stage of the plan has any. `notes`
        is filled by the code that makes engines."""
        self.learner = learner
        self._notes, self._noted = [] if notes is None else notes, set[str]()
        self._limits = limits
        self._text = ProbeText()
        self.connection: Any = None
        """To the samplers, if weights go from GPU to GPU."""
        self._make_reference = reference
        self._reference: Scorer | None = None
        self._referred: Path | None = None
        self._critic = _Auxiliary("critic", critic)
        self._ranker = _Auxiliary("ranker", None if ranker is None else lambda: ranker(self._referred))

    def take_notes(self) -> list[str]:
        """Return notes for the user about the engines made so far, each note once."""
        fresh = [note for note in dict.fromkeys(self._notes) if note not in self._noted]
        self._noted.update(fresh)
        return fresh

    @divides_sequences
    def update(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        self._text.note_learned(sequences)
        # what it had changed by then is not known: the checkpoint before is the one to resume from
        with _in_memory("update", RunError):
            return self.learner.update(sequences, settings)

    @divides_sequences
    def update_weighed(
        self, sequences: Sequence[TrainSequence], settings: UpdateSettings, importance: Importance
    ) -> tuple[UpdateMetrics, list[Floats]]:
        self._text.note_learned(sequences)
        with _in_memory("update", RunError):
            return self.learner.update_weighed(sequences, settings, importance)

    @divides_sequences
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

    @divides_sequences
    def values(self, sequences: Sequence[TrainSequence]) -> list[Floats]:
        with _in_memory("values", StepRefused):
            return self.critic.values(sequences)

    @divides_sequences
    def update_critic(self, sequences: Sequence[TrainSequence], settings: ValueSettings) -> ValueMetrics:
        with _in_memory("critic", RunError):
            return self.critic.update(sequences, settings)

    @property
    def critic(self) -> ValueLearner:
        # after a stage of imitation it begins as the policy that imitates
        return self._critic.get()

    @divides_sequences
    def rank(self, sequences: Sequence[TrainSequence], temperature: float) -> list[Floats]:
        with _in_memory("ranking", StepRefused):
            return self.ranker.logprobs(sequences, temperature)

    @divides_sequences
    def update_ranker(self, sequences: Sequence[TrainSequence], settings: UpdateSettings) -> UpdateMetrics:
        with _in_memory("critic", RunError):
            return self.ranker.update(sequences, settings)

    @property
    def ranker(self) -> Learner:
        # it begins as the reference of the stage that asks
        return self._ranker.get()

    def new_ranker(self) -> None:
        self._ranker.close()

    def set_optimizer(self, settings: OptimizerSettings, *, fresh: bool) -> None:
        """Set them for all that are trained."""
        self.learner.set_optimizer(settings, fresh=fresh)
        for each in (self._critic, self._ranker):
            each.set_optimizer(settings, fresh=fresh)

    def save(self, folder: Path) -> None:
        self.learner.save(folder)
        for each in (self._critic, self._ranker):
            each.save(folder)

    def load(self, folder: Path) -> None:
        """Load the learner as it was saved, and the critic and the ranker, if there were any by then."""
        self.learner.load(folder)
        for each in (self._critic, self._ranker):
            each.load(folder)

    def export(self, folder: Path) -> None:
        self.learner.export(folder)

    def close(self) -> None:
        self.learner.close()
        for each in (self._critic, self._ranker):
            each.close()

    def offer_prompts(self, prompts: Sequence[Sequence[int]]) -> None:
        """Take a stage's prompts as probe text for a sync, until something has been trained on."""
        self._text.offer_prompts(prompts)

    def handover(self, version: int) -> WeightUpdate:
        """The weights, and all that their receiver needs to check that they arrived."""
        return WeightUpdate(
            version=version, tensors=self.learner.weights(), checksums=self.learner.checksums(), probe=self.probe()
        )

    def probe(self) -> Probe:
        with _in_memory("sync", StepRefused):
            return self._text.score(self.learner, self._limits)


@contextmanager
def name_lost_rank() -> Iterator[None]:
    """Turn what a collective raises when a rank is missing into LearnerLost."""
    try:
        yield
    except RuntimeError as error:
        if not ("gloo/transport" in str(error) or type(error).__name__ in _WITHOUT_A_RANK):
            raise
        raise LearnerLost(f"a rank of the learner is gone, or late: {str(error).splitlines()[0][:200]}") from error


_WITHOUT_A_RANK = {"DistBackendError", "DistNetworkError", "DistStoreError"}
"""torch's own errors; gloo's has no class."""


@contextmanager
def _in_memory(what: str, refusal: type[RunError]) -> Iterator[None]:
    try:
        with name_lost_rank():
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
