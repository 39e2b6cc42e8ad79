"""State of a run as far as the console shows it: progress, success curve, evaluations, time left.

One thread writes; another may read at any time: what it reads is replaced whole, or safe to copy while it grows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isnan

from ....dsl.model.plan import Plan, PlanStage
from ...reporting import MetricsRow
from ...rollout.episode import Episode
from ...storage.summary import EvalResult, eval_results
from ...text_format import numeric

__all__ = ["ConsoleState", "Curve", "Remaining", "Timing", "is_eval"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_RECENT = 20
"""Steps that the pace is taken from: a growing horizon makes older ones misleading."""


def is_eval(row: MetricsRow) -> bool:
    return "eval/success" in row


class ConsoleState:
    """The run so far, from what a Reporter receives."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.phase = "start"
        self.stage = ""
        """The name of the stage; empty before the first."""
        self.step = 0
        self.total_step = 0
        self.last: MetricsRow = {}
        """The last step's row."""
        self.success = Curve()
        self.episode: Episode | None = None
        """The last that ended."""
        self.episodes = 0
        """Ended since the last row."""
        self.first_eval: tuple[tuple[str, EvalResult], ...] = ()
        self.last_eval: tuple[tuple[str, EvalResult], ...] = ()
        self._timing = Timing(plan)

    def end_episode(self, episode: Episode) -> None:
        self.episode = episode
        self.episodes += 1

    def add(self, row: MetricsRow) -> None:
        self.episodes = 0
        self.total_step = int(numeric(row, "total_step") or 0)
        self.stage = str(row.get("stage", self.stage))
        (self._add_eval if is_eval(row) else self._add_step)(row)

    def _add_step(self, row: MetricsRow) -> None:
        self.last = row
        self.step = int(numeric(row, "step") or 0)
        seconds, success = numeric(row, "timing_s/step"), numeric(row, "rollout/success")
        if seconds is not None:
            self._timing.step(self.stage, seconds)
        if success is not None:
            self.success.add(success)

    def _add_eval(self, row: MetricsRow) -> None:
        self.last_eval = eval_results(row)
        self.first_eval = self.first_eval or self.last_eval
        seconds = numeric(row, "timing_s/eval")
        if seconds is not None:
            self._timing.evals.append(seconds)

    def remaining(self) -> Remaining | None:
        return self._timing.remaining(self.stage, self.step, self.total_step)

    @property
    def planned(self) -> PlanStage | None:
        """The stage under way, as planned."""
        return next((stage for stage in self.plan.stages if stage.settings.stage == self.stage), None)

    @property
    def progress(self) -> str:
        """`12/40`: steps of this stage, out of its bound if it has one."""
        bound = self.planned.budget.max_steps if self.planned else None
        return f"{self.step}/{bound}" if bound is not None else str(self.step)


class Curve:
    """Values from 0 to 1 as block characters, oldest at the left.

    When the columns are full, neighbours are merged and each column stands for twice as many values: memory and time
    stay the same over a run of any length.
    """

    def __init__(self, columns: int = 40) -> None:
        if columns < 2 or columns % 2:
            raise ValueError(f"expected an even number of columns, got {columns}")
        self._columns = columns
        self._means: list[float] = []
        self._per_column = 1
        self._pending: list[float] = []

    def add(self, value: float) -> None:
        if isnan(value):
            return
        self._pending.append(value)
        if len(self._pending) < self._per_column:
            return
        if len(self._means) == self._columns:
            self._halve()
            return
        self._means.append(sum(self._pending) / len(self._pending))
        self._pending = []

    def _halve(self) -> None:
        # a new list, so that a reader in another thread sees the old curve or the new one
        self._means = [(a + b) / 2 for a, b in zip(self._means[::2], self._means[1::2], strict=True)]
        self._per_column *= 2

    def __str__(self) -> str:
        last = len(_BLOCKS) - 1
        return "".join(_BLOCKS[min(max(int(value * len(_BLOCKS)), 0), last)] for value in tuple(self._means))


# --- time left -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """Time left."""

    seconds: float
    whole: bool
    """False where some part is not known: the run takes longer than that."""


@dataclass(slots=True)
class Timing:
    """Paces of steps by stage and of evaluations, and the time left by the plan's bounds on steps.

    A stage without a bound, or of a kind that was never timed, is not guessed at.
    """

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
        return Remaining(seconds=seconds + self._eval_seconds(steps, total_step), whole=whole)

    def _pace(self, stage: PlanStage) -> float | None:
        """Of a stage's own steps, else of those of its kind."""
        own = self.stages.get(stage.settings.stage)
        same = [s.settings.stage for s in self.plan.stages if s.kind is stage.kind]
        return _mean(own or [seconds for name in same for seconds in tuple(self.stages.get(name, ()))])

    def _eval_seconds(self, steps: int, total_step: int) -> float:
        settings, pace = self.plan.eval, _mean(tuple(self.evals))
        if settings is None or pace is None:
            return 0.0
        last = total_step + steps
        due = last // settings.every - total_step // settings.every
        return pace * (due + (settings.at_end and steps > 0 and last % settings.every != 0))


def _mean(values: Iterable[float]) -> float | None:
    known = tuple(values)
    return sum(known) / len(known) if known else None
