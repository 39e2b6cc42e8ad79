"""Walks the plan: stages, steps, measurements, saves.

Enters: a Plan, a run folder, a crew. Leaves: a trained model in that folder, and the outcome. All that decides what
comes next is in `Progress` and in the learner, and both are in every checkpoint: a run that was killed and resumed
takes the same steps as one that never was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ..dsl.algorithm import Kind
from ..dsl.plan import Plan, PlanStage
from ..dsl.recipe import OnFault
from .evaluate import Measuring, measure
from .guards import GuardStop, Verdict, judge
from .progress import Progress, StageFacts
from .reporting import Reporter, Row
from .stages import STEPS, Context, StepResult
from .workers import Crew
from .workspace import Metrics, Workspace

__all__ = ["Engine", "Outcome", "OutcomeKind", "StopSignal"]


class OutcomeKind(StrEnum):
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    GUARDED = "guarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the run ended."""

    kind: OutcomeKind
    steps: int
    reason: str = ""


@dataclass(slots=True)
class StopSignal:
    """Set from outside; the engine looks at it between steps."""

    wanted: bool = False


class Engine:
    """One run."""

    def __init__(
        self,
        plan: Plan,
        space: Workspace,
        crew: Crew,
        reporter: Reporter,
        clock: Callable[[], float],
        stop: StopSignal | None = None,
    ) -> None:
        self._plan = plan
        self._space = space
        self._crew = crew
        self._reporter = reporter
        self._clock = clock
        self._stop = stop or StopSignal()
        self._progress = Progress()
        self._metrics: Metrics | None = None
        self._synced = -1

    async def run(self) -> Outcome:
        await self._restore()
        try:
            return await self._walk()
        except GuardStop as stop:
            return Outcome(kind=OutcomeKind.GUARDED, steps=self._progress.total_step, reason=str(stop))
        finally:
            self._rows.close()

    @property
    def _rows(self) -> Metrics:
        assert self._metrics is not None, "metrics are opened by _restore"
        return self._metrics

    # --- the walk --------------------------------------------------------------------------------------------------

    async def _walk(self) -> Outcome:
        progress = self._progress
        if self._plan.eval is not None and self._plan.eval.at_start and not progress.started_eval:
            await self._evaluate()
        progress.started_eval = True
        while progress.stage < len(self._plan.stages):
            stage = self._plan.stages[progress.stage]
            context = await self._enter(stage)
            while not self._over(stage):
                if self._stop.wanted:
                    await self._save()
                    return Outcome(kind=OutcomeKind.INTERRUPTED, steps=progress.total_step)
                await self._step(stage, context)
            progress.next_stage()
        await self._finish()
        return Outcome(kind=OutcomeKind.FINISHED, steps=progress.total_step)

    def _over(self, stage: PlanStage) -> bool:
        until = stage.settings.until
        if self._progress.step == 0:
            return False
        return until is None or until.holds(StageFacts(self._progress, stage.settings.stage, "until"))

    async def _enter(self, stage: PlanStage) -> Context:
        self._reporter.phase(f"stage {stage.settings.stage}")
        return await Context.of(self._plan, stage, self._crew, self._progress, self._reporter, self._clock)

    async def _step(self, stage: PlanStage, context: Context) -> None:
        progress, started = self._progress, self._clock()
        if stage.kind in (Kind.RL, Kind.EVOLVE):
            await self._sync()
        result = await STEPS[stage.kind](context)
        progress.version += result.updates
        progress.step += 1
        progress.total_step += 1
        progress.measure(result.facts)
        verdict = judge(self._plan.guards, progress.guarding, result.signs)
        if stage.kind is Kind.RL:
            await self._sync()
        self._write(self._row(stage, result, verdict, self._clock() - started))
        await self._obey(verdict)
        await self._after_step()

    async def _after_step(self) -> None:
        every = self._plan.eval
        if every is not None and self._progress.total_step % every.every == 0:
            await self._evaluate()
        if self._progress.total_step % self._plan.checkpoint.every == 0:
            await self._save()

    async def _finish(self) -> None:
        every, progress = self._plan.eval, self._progress
        if every is not None and every.at_end and progress.total_step % every.every != 0:
            await self._evaluate()
        await self._save()

    # --- what a step leads to --------------------------------------------------------------------------------------

    async def _sync(self) -> None:
        """The sampler gets the learner's weights, if it has older ones."""
        if self._synced != self._progress.version:
            self._reporter.phase("sync")
            await self._crew.sync(self._progress.version)
            self._synced = self._progress.version

    async def _evaluate(self) -> None:
        assert self._plan.eval is not None
        await self._sync()
        self._reporter.phase("eval")
        stage = self._plan.stages[min(self._progress.stage, len(self._plan.stages) - 1)]
        measuring = Measuring(
            plan=self._plan, stage=stage, total_step=self._progress.total_step, crew=self._crew, clock=self._clock
        )
        measured = await measure(measuring, self._reporter)
        self._progress.measure({"eval_success": float(measured.row["eval/success"])})
        self._write(measured.row)

    async def _obey(self, verdict: Verdict) -> None:
        if verdict.action is None:
            return
        self._reporter.note(verdict.reason)
        if verdict.action is OnFault.STOP:
            await self._save()
            raise GuardStop(verdict.reason)
        if verdict.action is OnFault.ROLL_BACK:
            await self._roll_back(verdict.reason)

    async def _roll_back(self, reason: str) -> None:
        """The weights and the optimiser as they were; the clock and the data go on, or the same would happen again."""
        guarding, good = self._progress.guarding, self._space.checkpoints()
        guarding.roll_backs += 1
        if guarding.roll_backs > self._plan.guards.max_roll_backs:
            raise GuardStop(f"{reason}; and {self._plan.guards.max_roll_backs} roll-backs did not help")
        if not good:
            self._reporter.note("no checkpoint to roll back to yet: the update was left out instead")
            return
        step, folder = good[-1]
        await self._crew.load(folder)
        self._progress.version += 1  # weights that were never sampled from under any older number
        self._reporter.note(f"rolled back to the weights of step {step}")

    # --- folder ----------------------------------------------------------------------------------------------------

    async def _restore(self) -> None:
        good = self._space.checkpoints()
        if good:
            _, folder = good[-1]
            self._progress = Progress.from_json((folder / "progress.json").read_text())
            await self._crew.load(folder)
        self._metrics = Metrics(self._space.root / "metrics.jsonl", keep_bytes=self._progress.metrics_bytes)

    async def _save(self) -> None:
        self._reporter.phase("save")
        self._progress.metrics_bytes = self._rows.size
        with self._space.checkpoint(self._progress.total_step) as folder:
            await self._crew.save(folder)
            if self._plan.checkpoint.export:
                await self._crew.export(folder / "model")
            (folder / "progress.json").write_text(self._progress.to_json())
        steps = [step for step, _ in self._space.checkpoints()]
        self._space.drop(steps[: -self._plan.checkpoint.keep])

    def _row(self, stage: PlanStage, result: StepResult, verdict: Verdict, seconds: float) -> Row:
        return {
            "total_step": self._progress.total_step,
            "stage": stage.settings.stage,
            "step": self._progress.step,
            **result.row,
            "guard/action": verdict.action.value if verdict.action else "",
            "timing_s/step": seconds,
        }

    def _write(self, row: Row) -> None:
        self._rows.append(row)
        self._reporter.row(row)
