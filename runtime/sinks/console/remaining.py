"""How long a run may still take.

Enters: a plan's bounds on steps, the seconds that steps and measurements took. Leaves: seconds, and whether they
cover all that is left: a stage without a bound, or of a kind that was never timed, is not guessed at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from ....dsl.model.algorithm import Kind
from ....dsl.model.plan import Plan, PlanStage

__all__ = ["Remaining", "Timing"]

_RECENT = 20
"""Steps that the pace is taken from: a growing horizon makes older ones misleading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """Time that is left."""

    seconds: float
    whole: bool
    """False where some part is not known: the run takes longer than that."""


@dataclass(slots=True)
class Timing:
    """Measured paces, by kind of stage; a stage's own come first."""

    plan: Plan
    stages: dict[str, deque[float]] = field(default_factory=dict)
    evals: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def step(self, stage: str, seconds: float) -> None:
        self.stages.setdefault(stage, deque(maxlen=_RECENT)).append(seconds)

    def remaining(self, stage: str, step: int, total_step: int) -> Remaining | None:
        """From here on; None before anything was timed."""
        at = next((s.index for s in self.plan.stages if s.settings.stage == stage), None)
        if at is None or not self.stages:
            return None
        seconds, steps, whole = 0.0, 0, True
        for planned in self.plan.stages[at:]:
            pace, bound = self._pace(planned), planned.budget.max_steps
            if pace is None or bound is None:
                whole = False
                continue
            left = max(bound - (step if planned.index == at else 0), 0)
            seconds += left * pace
            steps += left
        return Remaining(seconds=seconds + self._evals(steps, total_step), whole=whole)

    def _pace(self, stage: PlanStage) -> float | None:
        own = self.stages.get(stage.settings.stage)
        return _mean(own) if own else _mean(self._of_kind(stage.kind))

    def _of_kind(self, kind: Kind) -> list[float]:
        same = [s.settings.stage for s in self.plan.stages if s.kind is kind]
        return [seconds for name in same for seconds in tuple(self.stages.get(name, ()))]

    def _evals(self, steps: int, total_step: int) -> float:
        every, pace = self.plan.eval, _mean(tuple(self.evals))
        if every is None or pace is None:
            return 0.0
        last = total_step + steps
        due = last // every.every - total_step // every.every
        return pace * (due + (every.at_end and steps > 0 and last % every.every != 0))


def _mean(values: Iterable[float]) -> float | None:
    known = tuple(values)
    return sum(known) / len(known) if known else None
