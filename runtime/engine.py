"""Walks the plan: stages, steps, evaluations, saves.

What comes next is a pure function of `Progress`, which is in every checkpoint: a run that was killed at any moment and
resumed takes the same steps, and writes the same rows, as one that was never killed. A learner that is lost is
replaced, and the run goes on from its newest checkpoint in the same way, without human help.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from pathlib import Path

from ..dsl.model.algorithm import Kind, RetrainFrom
from ..dsl.model.plan import OpKind, Plan, PlanStage
from ..dsl.model.recipe import OnFault
from ..dsl.model.stage_kinds import has_reference, has_teacher, own_end
from .data.judge_client import JudgeClient
from .errors import LearnerLost, RunError, StepRefused
from .guards import GuardStop, Verdict, apply_guards
from .interrupts import StopSignal
from .progress import Progress
from .protocols import OptimizerSettings
from .reporting import EventKind, MetricsRow, Reporter
from .rollout.episode import Episode
from .seeds import derive
from .steps.evaluate import Evaluation, evaluate, refuse_overlap
from .steps.ops import check_ops, is_due, run_op, run_step
from .steps.prefetch import Prefetcher
from .steps.rollout_batch import RolloutBatch, read_batches, write_batches
from .steps.stage_context import StageContext, open_pool, reference_stage
from .steps.step_data import StepData, StepResult
from .storage.checkpoint_files import find_damage
from .storage.episode_log import (
    EpisodeEntry,
    EpisodePurpose,
    episode_lines,
    episode_pictures,
    harness_logs,
)
from .storage.events import DISCARDED, REPLACED, RESTARTS, count_events
from .storage.learning_signs import LearningSigns
from .storage.run_folder import MODEL, PROGRESS, JsonLines, RunFolder, on_disk, replace_file, sealed_folder
from .storage.run_reader import read_progress
from .storage.summary import read_rows
from .storage.training_log import choose_groups, demonstration_entries, training_entries
from .text_format import format_count
from .workers.learner_worker import LearnerWorker
from .workers.rollout_worker import RolloutWorker
from .workers.worker_group import WorkerGroup

__all__ = ["Engine", "OutcomeKind", "RunOutcome"]


class OutcomeKind(StrEnum):
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    GUARDED = "guarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How the run ended."""

    kind: OutcomeKind
    steps: int
    reason: str = ""


class _Stopped(Exception):
    """The signal was seen."""


_LOOK_UP_S = 0.5
"""Between looks at the signal while a learner starts, which may take longer than the time to save in."""


class Engine:
    """One run."""

    def __init__(
        self,
        plan: Plan,
        space: RunFolder,
        workers: WorkerGroup,
        reporter: Reporter,
        clock: Callable[[], float],
        stop: StopSignal | None = None,
        troubles: Callable[[], int] = lambda: 0,
        judges: JudgeClient | None = None,
        *,
        wall_clock: Callable[[], float],
    ) -> None:
        """`troubles` counts those of environments' servers; `wall_clock` is in seconds since 1970."""
        self._plan = plan
        self._space = space
        self._workers = workers
        self._reporter = reporter
        self._clock = clock
        self._wall_clock = wall_clock
        self._stop = stop or StopSignal()
        self._troubles = troubles
        self._troubles_told = troubles()
        self._judges = judges
        self._rows: JsonLines
        """Opened by `_restore`."""
        self._context: StageContext
        """Of the stage under way, from `_enter` on."""
        self._restarts = 0
        """Of the learner, since the newest checkpoint."""
        self._counts = count_events(space.root)
        """Of workers, by metric."""
        self._replaced = Counter[str]()
        """Workers by role, as last asked for."""
        self._prompt_versions: dict[str, str] = {}
        """By environment, as this process last recorded them."""
        self._reset()

    def _reset(self) -> None:
        """Forget what happened since the start, or since the learner that is lost was started."""
        self._progress = Progress()
        hardware = self._plan.hardware
        self._prefetcher = Prefetcher(hardware.staleness, in_flight=hardware.in_flight)
        self._synced = -1
        """Version of the weights that the sampler holds."""
        self._saved = -1
        """The `total_step` of the newest checkpoint."""
        self._signs = LearningSigns()

    async def run(self) -> RunOutcome:
        lost: LearnerLost | None = None
        while True:
            try:
                if lost is not None:
                    await self._restart(lost)
                return await self._attempt()
            except LearnerLost as error:
                lost = error
            except _Stopped:
                # while there was no learner to save
                return RunOutcome(kind=OutcomeKind.INTERRUPTED, steps=max(self._saved, 0))
            finally:
                self._count_replaced()

    async def _restart(self, lost: LearnerLost) -> None:
        """Start another learner, unless that has not helped before, or the run is to end anyway."""
        self._look_up()
        limit = self._plan.hardware.max_restarts
        since = f"the checkpoint of step {self._saved}" if self._saved >= 0 else "the start of the run"
        if self._restarts >= limit:
            count = format_count(self._restarts, "time")
            raise RunError(
                f"{lost}; the learner was restarted {count} since {since}, the limit of 'hardware.max_restarts' "
                f"({limit}): fix what ends it, and resume"
            ) from lost
        self._restarts += 1
        self._reporter.phase("restart")
        self._reporter.note(f"{lost}; restarting the learner, to continue from {since}")
        restarting = asyncio.ensure_future(self._workers.restart_learner())
        while not restarting.done():
            await asyncio.wait([restarting], timeout=_LOOK_UP_S)
            if self._stop.wanted:
                restarting.cancel()
                await asyncio.wait([restarting])
                raise _Stopped
        restarting.result()

    async def _attempt(self) -> RunOutcome:
        """Walk from the newest checkpoint to the end."""
        checkpoint = self._restore()
        try:
            if checkpoint is not None:
                await self._workers.learner(LearnerWorker.load, checkpoint)
            if not self._progress.finished:
                await self._walk()
            return self._outcome(OutcomeKind.FINISHED)
        except _Stopped:
            await self._save()
            return self._outcome(OutcomeKind.INTERRUPTED)
        except GuardStop as stop:
            return self._outcome(OutcomeKind.GUARDED, str(stop))
        except StepRefused:
            # if a batch played by older weights is lost, nothing can be saved from which it could be played again: the
            # checkpoint before is the one to resume from
            with suppress(StepRefused):
                await self._save()
            raise
        finally:
            await self._prefetcher.close()
            self._rows.close()

    def _count_replaced(self) -> None:
        """Count the workers that were replaced since it was last asked."""
        for role, number in self._workers.count_replaced().items():
            if (fresh := number - self._replaced[role]) > 0:
                self._counts[REPLACED[role]] += fresh
                self._event(EventKind.WORKER_REPLACED, f"{role}: replaced {fresh}", role=role, count=fresh)
            self._replaced[role] = number

    def _event(self, kind: EventKind, text: str, **facts: int | str) -> None:
        self._reporter.event(kind, text, total_step=self._progress.total_step, **facts)

    def _outcome(self, kind: OutcomeKind, reason: str = "") -> RunOutcome:
        return RunOutcome(kind=kind, steps=self._progress.total_step, reason=reason)

    @property
    def _stage(self) -> PlanStage:
        return self._plan.stages[self._progress.stage]

    # --- the walk --------------------------------------------------------------------------------------------------

    async def _walk(self) -> None:
        while True:
            await self._enter()
            # a run that is resumed may still owe what was due after its last step
            await self._between_steps()
            while not self._is_over():
                await self._step()
                await self._between_steps()
            await self._prefetcher.back_to()
            if self._stage is self._plan.stages[-1]:
                break
            self._progress.next_stage()
        if self._plan.eval is not None and self._plan.eval.at_end:
            await self.evaluate()
        self._progress.finished = True
        await self._save()

    async def _between_steps(self) -> None:
        """Walk the ops that are due after so many steps; the newest best step is saved too."""
        for op in self._stage.ops:
            self._look_up()
            best = op.kind is OpKind.SAVE and self._progress.best_step == self._progress.total_step
            if best or is_due(op, self._progress.total_step):
                await run_op(op, self._context, StepData())
        self._look_up()

    def _look_up(self) -> None:
        if self._stop.wanted:
            raise _Stopped

    def _is_regular(self, total_step: int) -> bool:
        return total_step > 0 and total_step % self._plan.checkpoint.every == 0

    def _is_over(self) -> bool:
        until, end = self._stage.settings.until, own_end(self._stage.settings.algorithm)
        if self._progress.step == 0:
            return False
        if end is not None and self._progress.step >= end:
            return True
        return until is not None and until.holds(self._context.facts("until"))

    # --- stages ----------------------------------------------------------------------------------------------------

    async def _enter(self) -> None:
        stage, progress = self._stage, self._progress
        check_ops(stage.ops)
        self._reporter.phase(f"stage {stage.settings.stage}")
        before = self._plan.stages[stage.index - 1] if stage.index else None
        if progress.step == 0 and before is not None:
            # the weight was adapted to another divergence
            progress.kl_scale = progress.kl_scale if _pull(before) == _pull(stage) else 1.0
        await self._optimise(fresh=progress.step == 0 and before is not None and _lesson(before) != _lesson(stage))
        self._context = StageContext(
            plan=self._plan,
            ops=stage.ops,
            stage=stage.settings,
            workers=self._workers,
            progress=progress,
            reporter=self._reporter,
            clock=self._clock,
            pools={
                name: await open_pool(
                    self._plan,
                    name,
                    environment,
                    self._workers,
                    has_judge=stage.settings.reward.judge is not None,
                )
                for name, environment in stage.settings.environments.items()
            },
            prefetcher=self._prefetcher,
            run=self,
            base=self._space.base(stage.settings.stage),
            judges=self._judges,
        )
        if self._plan.eval is not None and stage.kind is not Kind.EVAL:
            await refuse_overlap(self._context, self._plan.eval)
        await self._refer()
        await self._offer_prompts()
        await self._keep_base()
        await self._note()

    async def _note(self) -> None:
        """Report what the learner's engines found about their models when they were built."""
        for text in await self._workers.learner(LearnerWorker.take_notes):
            self._reporter.note(text)

    async def _optimise(self, *, fresh: bool) -> None:
        optimizer = self._stage.settings.algorithm.optimizer
        settings = OptimizerSettings(betas=optimizer.betas, eps=optimizer.eps, weight_decay=optimizer.weight_decay)
        await self._workers.learner(LearnerWorker.set_optimizer, settings, fresh=fresh)
        if fresh:
            self._progress.updates = 0

    async def _refer(self) -> None:
        """Set the reference that divergences are measured from; keep this stage's start if any stage refers to it."""
        stages, index = self._plan.stages, self._stage.index
        asked = {reference_stage(stages, each) for each in stages[index:] if _has_earlier_self(each)}
        if index in asked - {0} and self._progress.step == 0:
            with on_disk("reference"), sealed_folder(self._space.reference(self._stage.settings.stage)) as folder:
                await self._workers.learner(LearnerWorker.export, folder)
        teacher = self._stage.settings.algorithm.distill.teacher
        if has_teacher(self._stage.settings.algorithm) and teacher is not None:
            await self._workers.learner(LearnerWorker.refer_to, Path(teacher))
            return
        start = reference_stage(stages, self._stage)
        # the learner already has what the run starts with
        known = not start or not has_reference(self._stage.settings.algorithm)
        reference = None if known else self._space.reference(stages[start].settings.stage)
        await self._workers.learner(LearnerWorker.refer_to, reference)

    async def _offer_prompts(self) -> None:
        """Give the learner text to check weights with, if it has not been trained on any yet."""
        settings = self._stage.settings
        prompts = await self._workers.rollout(RolloutWorker.prompts, settings.agent, settings.environments)
        await self._workers.learner(LearnerWorker.offer_prompts, prompts)
        if settings.agent.harness is None:
            versions = await self._workers.rollout(RolloutWorker.prompt_versions, settings.agent, settings.environments)
            for name, version in sorted(versions.items()):
                if self._prompt_versions.get(name) != version:
                    self._event(EventKind.PROMPT, f"{name}: {version}", environment=name, version=version)
            self._prompt_versions |= versions

    async def _keep_base(self) -> None:
        """Keep, for a resume, what each round of retraining begins with: the learner at the start of the stage."""
        stage, progress = self._stage, self._progress
        if stage.kind is not Kind.EVOLVE or stage.settings.algorithm.evolve.retrain_from is not RetrainFrom.BASE:
            return
        if progress.step == 0:
            with on_disk("base"), sealed_folder(self._space.base(stage.settings.stage)) as folder:
                await self._workers.learner(LearnerWorker.save, folder)
                (folder / PROGRESS).write_text(progress.to_json())
        _refuse_damaged(self._space.base(stage.settings.stage))

    # --- a step ----------------------------------------------------------------------------------------------------

    async def _step(self) -> None:
        if self._stage.kind is Kind.EVAL:
            self._progress.count_step()
            await run_step(self._context)
            return
        before, begun = self._progress.copy(), self._prefetcher.begun
        try:
            await self._train()
        except StepRefused:
            # tasks were drawn that nothing has been trained on yet
            self._progress = before
            await self._prefetcher.back_to(begun)
            raise

    async def _train(self) -> None:
        progress, started = self._progress, self._clock()
        result = await run_step(self._context)
        progress.version += result.updates
        progress.count_step()
        progress.measure(result.facts)
        verdict = apply_guards(self._plan.guards, progress.guarding, result.signals)
        self._log_training(result)
        self._write(self._row(result, verdict, self._clock() - started))
        await self._obey(verdict)

    def _row(self, result: StepResult, verdict: Verdict, seconds: float) -> MetricsRow:
        before, self._troubles_told = self._troubles_told, self._troubles()
        self._count_replaced()
        return {
            "total_step": self._progress.total_step,
            "stage": self._stage.settings.stage,
            "step": self._progress.step,
            **result.row,
            "rollout/server_troubles": self._troubles_told - before,
            **self._counts,
            **({"guard/action": verdict.action.value} if verdict.action else {}),
            "timing_s/step": seconds,
        }

    async def sync(self) -> None:
        if self._synced != self._progress.version:
            proof = await self._workers.sync(self._progress.version)
            if self._synced < 0 and proof.unproven:
                kinds = ", ".join(proof.unproven)
                self._reporter.note(f"sync: {kinds} cannot be compared with what was sent; only log-probs check them")
            self._synced = self._progress.version

    async def evaluate(self) -> None:
        """Evaluate the newest weights, unless that was done already."""
        settings, progress = self._plan.eval, self._progress
        assert settings is not None, "a plan with an op that evaluates says how"
        if progress.measured_at == progress.total_step:
            return
        self._reporter.phase("eval")
        await self._prefetcher.drain()
        await self.sync()
        evaluation = await evaluate(self._context, settings)
        progress.measured_at = progress.total_step
        progress.measure({"eval_success": float(evaluation.row["eval/success"])})
        self._log_evaluation(evaluation)
        self._write(evaluation.row)

    async def save(self) -> None:
        """Save a checkpoint, unless there is one of this step."""
        if self._saved != self._progress.total_step:
            await self._save()

    # --- guards ----------------------------------------------------------------------------------------------------

    async def _obey(self, verdict: Verdict) -> None:
        if verdict.action is None:
            return
        self._event(EventKind.GUARD, verdict.reason, action=verdict.action.value)
        if verdict.action is OnFault.STOP:
            await self._save()
            raise GuardStop(f"{verdict.reason}; {verdict.help}")
        if verdict.action is OnFault.ROLL_BACK:
            await self._roll_back(verdict)

    async def _roll_back(self, verdict: Verdict) -> None:
        """The weights and the optimiser as they were; the clock and the data go on, or the same would happen again."""
        guarding = self._progress.guarding
        guarding.roll_backs += 1
        if guarding.roll_backs > self._plan.guards.max_roll_backs:
            helpless = f"and {self._plan.guards.max_roll_backs} roll-backs did not help"
            raise GuardStop(f"{verdict.reason}; {helpless}; {verdict.help}")
        # a checkpoint that only an interrupted run has must not decide how this one continues
        with on_disk("roll-back"):
            good = self._space.newest_sound(self._read, self._reporter.note, self._is_regular)
        if good is None:
            self._reporter.note("no checkpoint to roll back to yet: the update was left out instead")
            return
        folder, (then, _) = good
        # batches under way were played by weights that are given up here: those that failed, or ones just before them
        await self._prefetcher.back_to()
        await self._workers.learner(LearnerWorker.load, folder)
        await self._optimise(fresh=_lesson(self._plan.stages[then.stage]) != _lesson(self._stage))
        self._progress.version += 1  # the sampler has to get them again
        text = f"rolled back to the weights of step {then.total_step}"
        self._event(EventKind.ROLL_BACK, text, to_step=then.total_step)

    # --- the folder ------------------------------------------------------------------------------------------------

    def _restore(self) -> Path | None:
        """Bring the folder and the progress to the newest sound checkpoint, which is returned if there is one."""
        self._reset()
        held = bool(self._space.checkpoints())
        with on_disk("start"):
            good = self._space.newest_sound(self._read, self._reporter.note)
        checkpoint = None
        if good is not None:
            checkpoint, (self._progress, batches) = good
            self._saved = self._progress.total_step
            with on_disk("start"):
                self._space.publish_model(checkpoint)
            self._prefetcher.resume(batches)
        elif held:
            raise RunError(f"'{self._space.root}' has no sound checkpoint left: start over with --fresh")
        metrics = self._space.root / "metrics.jsonl"
        self._count_discarded(metrics)
        with on_disk("start"):
            self._space.forget_episodes(after=self._progress.total_step)
            self._rows = JsonLines(metrics, keep_bytes=self._progress.metrics_bytes)
        if self._rows.num_lost_bytes:
            lost = f"'{metrics}' was cut: rows before step {self._progress.total_step} are missing"
            self._reporter.note(f"{lost}, and the run goes on after its last whole one")
        for row in read_rows(metrics):
            self._signs.add(row)
        return checkpoint

    def _count_discarded(self, metrics: Path) -> None:
        """Report a resume or a restart, with the number of steps that are done again."""
        if not metrics.exists():
            return
        step = reached = self._progress.total_step
        # what follows the rows that are kept may be damaged
        with suppress(RunError):
            for row in read_rows(metrics):
                reached = int(row["total_step"])
        discarded = max(reached - step, 0)
        text = f"from step {step}; {format_count(discarded, 'step')} discarded"
        if not self._restarts:
            self._event(EventKind.RESUME, f"resumed {text}", discarded_steps=discarded)
            return
        self._counts += Counter({RESTARTS: 1, DISCARDED: discarded})
        self._event(EventKind.LEARNER_RESTARTED, f"learner restarted {text}", discarded_steps=discarded)

    def _read(self, step: int, folder: Path) -> tuple[Progress, Sequence[RolloutBatch]]:
        """What a checkpoint holds besides the learner."""
        progress = read_progress(folder)
        if progress.total_step != step or not 0 <= progress.stage < len(self._plan.stages):
            raise RunError(f"{PROGRESS}: stands at step {progress.total_step} of stage {progress.stage}")
        names = {name for stage in self._plan.stages for name in stage.settings.environments}
        return progress, read_batches(folder, names)

    async def _save(self) -> None:
        self._reporter.phase("save")
        batches, progress = await self._prefetcher.drain(), self._progress
        progress.metrics_bytes = self._rows.size
        with on_disk("save"):
            self._space.check_room()
            with self._space.checkpoint(progress.total_step) as folder:
                await self._workers.learner(LearnerWorker.save, folder)
                if self._plan.checkpoint.export:
                    await self._workers.learner(LearnerWorker.export, folder / MODEL)
                write_batches(folder, batches)
                (folder / PROGRESS).write_text(progress.to_json())
            self._saved, self._restarts = progress.total_step, 0
            superseded = self._superseded([step for step, _ in self._space.checkpoints()])
            self._space.drop(superseded, self._plan.checkpoint.keep_exports, [progress.best_step])

    def _superseded(self, steps: Sequence[int]) -> list[int]:
        """All but the newest, those to roll back to, and the best. Where earlier ones play, one more is kept, for the
        newest is none of them yet; and where the run is extended, it finds those that it would have had."""
        plays_earlier = self._plan.plays_earlier
        counts_all = self._progress.finished and not plays_earlier
        candidates = steps if counts_all else [step for step in steps if self._is_regular(step)]
        kept = {*candidates[-self._plan.checkpoint.keep - plays_earlier :], steps[-1], self._progress.best_step}
        return [step for step in steps if step not in kept]

    def _log_training(self, result: StepResult) -> None:
        """Keep the episodes of a step that the recipe asks for, with what the update made of them."""
        step, groups = self._progress.total_step, result.groups
        played = [episode for group in groups for episode in group.episodes]
        self._log_faults(played)
        entries = [EpisodeEntry(episode=each, group=at) for at, group in enumerate(groups) for each in group.episodes]
        self._log_harnesses(entries, EpisodePurpose.TRAIN)
        if self._is_regular(step):
            self._reporter.sample(EpisodePurpose.TRAIN, step, played)
        wanted, seed = self._plan.checkpoint.episodes.num_groups, derive(self._plan.seed, "saved episodes", step)
        if wanted == 0:
            return
        if chosen := choose_groups(groups, wanted, seed):
            entries = training_entries(groups, chosen, result.training)
            lines = self._encode(entries, EpisodePurpose.TRAIN)
            with on_disk("episodes"):
                self._space.save_pictures(episode_pictures(entries))
                self._space.append_episodes(step, lines)
        self._log_demonstrations()

    def _log_demonstrations(self) -> None:
        """Keep a sample of what the stage imitates, once; after a resume they are the same."""
        stage, demonstrations = self._stage.settings.stage, self._context.demonstrations
        file = self._space.demonstrations(stage)
        if demonstrations and not file.exists():
            entries = demonstration_entries(demonstrations, derive(self._plan.seed, "saved demonstrations", stage))
            with on_disk("episodes"):
                self._space.save_pictures(episode_pictures(entries))
                replace_file(file, self._encode(entries, EpisodePurpose.DEMONSTRATION))

    def _log_evaluation(self, evaluation: Evaluation) -> None:
        step, entries = self._progress.total_step, evaluation.entries
        played = [entry.episode for entry in entries]
        self._log_faults(played)
        self._log_harnesses(entries, EpisodePurpose.EVAL)
        self._reporter.sample(EpisodePurpose.EVAL, step, played)
        if entries and self._plan.checkpoint.episodes.saves_evaluations:
            with on_disk("episodes"):
                self._space.save_pictures(episode_pictures(entries))
                self._space.write_evaluation(step, self._encode(entries, EpisodePurpose.EVAL))

    def _log_harnesses(self, entries: Sequence[EpisodeEntry], purpose: EpisodePurpose) -> None:
        """Keep what each harness wrote on standard error, whichever episodes are saved."""
        for name, text in harness_logs(entries, purpose, self._progress.total_step).items():
            with on_disk("logs"):
                file = self._space.root / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8", errors="replace")

    def _log_faults(self, episodes: Sequence[Episode]) -> None:
        """Keep an event for each environment about the episodes that its faults spoilt, whether replaced or lost."""
        for name in sorted({episode.task.environment for episode in episodes if episode.faults}):
            spoilt = [each for each in episodes if each.faults and each.task.environment == name]
            faults = sum(len(each.faults) for each in spoilt)
            lost = [each for each in spoilt if not each.ending.trainable]
            last = f", the last by {lost[-1].fault}" if lost else ""
            text = f"{name}: {format_count(faults, 'fault')}, {format_count(len(lost), 'episode')} lost{last}"
            self._event(EventKind.FAULT, text, environment=name, count=faults, lost=len(lost))

    def _encode(self, entries: Sequence[EpisodeEntry], purpose: EpisodePurpose) -> bytes:
        stage = self._stage.settings.stage
        return episode_lines(entries, purpose=purpose, total_step=self._progress.total_step, stage=stage)

    def _write(self, row: MetricsRow) -> None:
        known = {name: value for name, value in row.items() if not isinstance(value, float) or isfinite(value)}
        progress, value = self._progress, known.get(self._plan.checkpoint.best or "")
        if isinstance(value, float) and (progress.best is None or value > progress.best):
            progress.best, progress.best_step = value, progress.total_step
        with on_disk("metrics"):
            # what a clock says is no metric: sinks have clocks of their own
            self._rows.append({**known, "time": self._wall_clock()})
        self._reporter.row(known)
        for text in self._signs.add(known):
            self._reporter.note(f"warning: {text}")


def _has_earlier_self(stage: PlanStage) -> bool:
    """Whether a KL of the stage is measured from what the policy was."""
    return has_reference(stage.settings.algorithm) and not has_teacher(stage.settings.algorithm)


def _refuse_damaged(folder: Path) -> None:
    if problem := find_damage(folder):
        raise RunError(f"'{folder}' is damaged: {problem}; restore it from a copy, or start over with --fresh")


def _lesson(stage: PlanStage) -> object:
    """What an optimiser's averages are averages of: when it changes they start anew, and with them the warm-up."""
    return stage.kind, stage.settings.algorithm.optimizer


def _pull(stage: PlanStage) -> object:
    return stage.kind, stage.settings.algorithm.kl
