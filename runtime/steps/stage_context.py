"""What a stage's steps can use, and a recipe's settings as of this step.

A number given as an expression is a pure function of `Progress`, so a resumed run computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Protocol, TypeVar

from ...dsl.expression.expr import Expr
from ...dsl.model.algorithm import Aggregation, DataSource, Kind, KLPlace, LossKind, Reference
from ...dsl.model.plan import Op, Plan, PlanStage
from ...dsl.model.recipe import Agent, Environment, Stage
from ..data.judge_client import JudgeClient
from ..errors import RunError, StepRefused
from ..learning.preference_pairs import Pair, Response, sum_logprobs
from ..learning.reward import StepNames
from ..progress import Progress, StageFacts
from ..protocols import Floats, LossSettings, SamplingSettings, UpdateLimits, UpdateSettings
from ..reporting import Reporter
from ..rollout.episode import Ending, Episode
from ..rollout.player import EpisodeLimits
from ..rollout.task_sampler import TaskPool, shuffle
from ..seeds import derive
from ..workers.rollout_worker import PlaySettings, RolloutWorker
from ..workers.worker_group import WorkerGroup
from .prefetch import Prefetcher

__all__ = [
    "RunOps",
    "StageContext",
    "agent_of",
    "episode_limits",
    "equal_parts",
    "horizon_of",
    "kl_weight",
    "open_pool",
    "pair_settings",
    "play_settings",
    "reference_stage",
    "refuse_faults",
    "response_logprobs",
    "sampling_settings",
    "shuffled_parts",
    "update_settings",
]


T = TypeVar("T")


class RunOps(Protocol):
    """Ops that need the run and not the stage alone."""

    async def sync(self) -> None:
        """Give the sampler the learner's weights, if it has older ones."""

    async def evaluate(self) -> None: ...

    async def save(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContext:
    """A stage under way."""

    plan: Plan
    stage: Stage
    workers: WorkerGroup
    progress: Progress
    reporter: Reporter
    clock: Callable[[], float]
    pools: Mapping[str, TaskPool]
    """Training tasks, by environment."""
    ops: tuple[Op, ...] = ()
    prefetcher: Prefetcher = field(default_factory=lambda: Prefetcher(0))
    """Where batches come from that are sampled ahead."""
    run: RunOps | None = None
    """None where nothing is trained."""
    base: Path | None = None
    """A checkpoint of the stage's start, where rounds of retraining go back to it."""
    judges: JudgeClient | None = None
    """What scores episodes where the environment does not."""
    demonstrations: list[Episode] = field(default_factory=list)
    """Of an offline stage; made when first asked for, the same after a resume."""
    shown: dict[str, Sequence[Episode]] = field(default_factory=dict)
    """By environment, expert episodes for the prompts; made when first asked for, the same after a resume."""
    pairs: list[Pair] = field(default_factory=list)
    """All pairs of an offline stage that trains on them; made and read as demonstrations are."""
    pair_reference: dict[Response, float] = field(default_factory=dict)
    """Log-probs under the reference of the responses used so far."""

    def value(self, number: float | Expr) -> float:
        """A number of the recipe, as of this step."""
        if not isinstance(number, Expr):
            return float(number)
        value = number.number(self.facts("schedule"))
        if value is None or not isfinite(value):
            at = f"stage '{self.stage.stage}', step {self.progress.step}"
            raise StepRefused(f"{at}: '{number.text}' has no value; expected a number")
        return value

    def facts(self, scope: str) -> StageFacts:
        return StageFacts(self.progress, self.stage.stage, scope)

    def names(self) -> StepNames:
        """What every expression may use."""
        return {
            "step": float(self.progress.step),
            "total_step": float(self.progress.total_step),
            "stage": self.stage.stage,
            "stage_index": float(self.progress.stage),
        }

    def seed(self, *names: str | int) -> int:
        return derive(self.plan.seed, self.stage.stage, self.progress.total_step, *names)


async def open_pool(
    plan: Plan, name: str, environment: Environment, workers: WorkerGroup, *, has_judge: bool
) -> TaskPool:
    """The training tasks of an environment; without a judge, those that need none."""
    seed, selection = derive(plan.seed, "tasks"), environment.tasks.train
    tasks = await workers.rollout(RolloutWorker.tasks, name, environment, selection, seed, has_judge=has_judge)
    return TaskPool(environment=name, tasks=tasks)


def reference_stage(stages: Sequence[PlanStage], stage: PlanStage) -> int:
    """Index of the stage whose first policy is the reference of this one."""
    if stage.settings.algorithm.kl.reference is Reference.STAGE:
        return stage.index
    imitated = [each.index + 1 for each in stages[: stage.index] if each.kind in (Kind.SFT, Kind.EVOLVE)]
    after = max(imitated, default=0)
    learning = (each.index for each in stages[after : stage.index] if not after or each.kind is not Kind.EVAL)
    return next(learning, stage.index)


def equal_parts(order: Sequence[int], most: int) -> list[Sequence[int]]:
    """As few parts as possible, as equal as possible: after filtering, no update is left with a small remainder."""
    count = -(-len(order) // most)
    borders = [len(order) * part // count for part in range(count + 1)]
    return [order[low:high] for low, high in pairwise(borders)]


def shuffled_parts(context: StageContext, items: Sequence[T], size: int, epochs: int, name: str) -> Iterator[list[T]]:
    """All items once per epoch in a shuffled order, update by update."""
    for epoch in range(epochs if items else 0):
        for places in equal_parts(shuffle(len(items), context.seed(name, epoch)), size):
            yield [items[place] for place in places]


def horizon_of(context: StageContext, environment: Environment) -> int:
    turns = environment.turns if environment.turns is not None else context.stage.turns
    if turns is None:
        raise RunError(f"stage '{context.stage.stage}' has no 'turns', and neither has its environment")
    return int(context.value(turns))


def episode_limits(context: StageContext, environment: Environment, horizon: int | None = None) -> EpisodeLimits:
    agent = context.stage.agent
    return EpisodeLimits(
        horizon=horizon if horizon is not None else horizon_of(context, environment),
        tokens_per_turn=int(context.value(agent.tokens_per_turn)),
        context_tokens=agent.context_tokens,
        invalid_limit=agent.invalid_limit,
        on_invalid=agent.on_invalid,
        observation_tokens=agent.observation_tokens,
    )


def sampling_settings(context: StageContext) -> SamplingSettings:
    sampling = context.stage.sampling
    return SamplingSettings(
        temperature=context.value(sampling.temperature),
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        stop_texts=sampling.stop,
    )


def agent_of(context: StageContext) -> Agent:
    """The stage's agent, with what depends on the model filled in."""
    agent = context.stage.agent
    if agent.show_actions is not None:
        return agent
    return replace(agent, show_actions=context.plan.model.init is None)


def play_settings(context: StageContext, episodes: int, sampling: SamplingSettings) -> PlaySettings:
    return PlaySettings(
        agent=agent_of(context),
        environments=context.stage.environments,
        sampling=sampling,
        timeouts=context.plan.rollout,
        slots=context.plan.rollout.slots or episodes,
        tokens_per_turn=int(context.value(context.stage.agent.tokens_per_turn)),
        total_step=context.progress.total_step,
    )


def refuse_faults(context: StageContext, episodes: Sequence[Episode], what: str) -> None:
    """Refuse to go on where too much was lost: the rest is no longer representative."""
    lost = [episode for episode in episodes if not episode.ending.trainable]
    if len(lost) > context.plan.rollout.max_fault_share * len(episodes):
        at_fault = "judge" if lost[-1].ending is Ending.UNSCORED else "environment"
        raise StepRefused(
            f"{what}: {len(lost)} of {len(episodes)} episodes were lost to failing {at_fault}s, the last one by "
            f"{lost[-1].fault}; fix the {at_fault} and resume"
        )


def update_settings(context: StageContext) -> UpdateSettings:
    algorithm, guards = context.stage.algorithm, context.plan.guards
    loss = algorithm.loss
    warm = min(1.0, (context.progress.updates + 1) / (algorithm.optimizer.warmup_steps + 1))
    return UpdateSettings(
        lr=context.value(algorithm.lr) * warm,
        max_grad_norm=algorithm.max_grad_norm,
        loss=LossSettings(
            kind=loss.kind,
            ratio=loss.ratio,
            clip_low=context.value(loss.clip.low),
            clip_high=context.value(loss.clip.high),
            dual_clip=loss.clip.dual,
            gate_positive=loss.gate.positive,
            gate_negative=loss.gate.negative,
            divergence=loss.divergence,
            aggregation=loss.aggregation,
            length=loss.length or context.stage.agent.context_tokens,
            kl_coef=kl_weight(context) if algorithm.kl.place is KLPlace.LOSS else 0.0,
            kl_estimator=algorithm.kl.estimator,
            kl_gradient=algorithm.kl.gradient,
            kl_clamp=algorithm.kl.clamp,
            previous_coef=context.value(algorithm.kl.previous_coef),
            off_policy=algorithm.importance.reject.off_policy,
            entropy_coef=context.value(algorithm.entropy.coef),
            temperature=context.value(context.stage.sampling.temperature),
        ),
        limits=UpdateLimits(kl=guards.kl_max, grad_norm=guards.grad_norm_max),
    )


def pair_settings(context: StageContext) -> UpdateSettings:
    """For updates whose advantages hold everything: the plain policy gradient, divided by the number of sequences.

    The preference is learned by the policy that plays, at its temperature, or else by the model, at temperature 1.
    """
    settings, algorithm = update_settings(context), context.stage.algorithm
    fresh = algorithm.data.source is DataSource.ROLLOUT
    loss = LossSettings(
        kind=LossKind.POLICY_GRADIENT,
        aggregation=Aggregation.FIXED_LENGTH,
        length=1,
        temperature=settings.loss.temperature if fresh else 1.0,
    )
    return replace(settings, loss=loss, limits=UpdateLimits(grad_norm=settings.limits.grad_norm))


async def response_logprobs(
    context: StageContext, responses: Sequence[Response], compute: Callable[..., list[Floats]], **options: bool
) -> dict[Response, float]:
    """Log-prob of each response as a whole, computed by a method of the learner."""
    if not responses:
        return {}
    sequences = [sequence for response in responses for sequence in response.sequences]
    temperature = pair_settings(context).loss.temperature
    return sum_logprobs(responses, await context.workers.compute(compute, sequences, temperature, **options))


def kl_weight(context: StageContext) -> float:
    """Weight of the divergence from the reference, wherever it is charged."""
    return context.value(context.stage.algorithm.kl.coef) * context.progress.kl_scale
