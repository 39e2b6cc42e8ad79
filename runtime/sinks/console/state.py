"""Where a run stands, as far as the console shows it.

Enters: what a Reporter hears. Leaves: attributes for `live` and `plain`. One thread writes; another may read at any
time: what it reads is replaced whole, or safe to copy while it grows.
"""

from __future__ import annotations

from ....dsl.model.plan import Plan
from ...reporting import MetricsRow
from ...rollout.episode import Episode
from ...storage.summary import EvalResult, eval_results
from ...text_format import numeric
from .curve import Curve
from .remaining import Remaining, Timing

__all__ = ["ConsoleState", "is_eval"]


def is_eval(row: MetricsRow) -> bool:
    return "eval/success" in row


class ConsoleState:
    """What is known now."""

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

    def ended(self, episode: Episode) -> None:
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

    def bound(self) -> int | None:
        """Steps that this stage takes at most."""
        return next((s.budget.max_steps for s in self.plan.stages if s.settings.stage == self.stage), None)
