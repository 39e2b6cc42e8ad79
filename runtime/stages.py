"""One step of each kind of stage, readable from top to bottom.

Enters: a Context, made when the stage begins. Leaves: a StepResult: what is learnt is in the learner, what was measured
is in the result. A step changes `Progress` only where it draws (tasks, demonstrations) and counts (episodes, tokens).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

from ..dsl.algorithm import Correction, Importance, Kind, LossKind
from ..dsl.expr import Expr
from ..dsl.plan import Plan, PlanStage
from ..dsl.recipe import DType, Environment, Stage
from .correction import importance_weights
from .episode import Episode, Group, Task
from .filters import missing, passes
from .guards import Signs
from .lesson import lesson, scored
from .ports import Draw, Floats, Limits, LossSettings, TrainSequence, UpdateFault, UpdateMetrics, UpdateSettings
from .progress import Progress, StageFacts
from .reporting import Reporter
from .reward import Clock, episode_facts
from .rollout import Budgets, Order, Phases
from .seeds import derive
from .statistics import group_row, mean, rollout_row
from .tasks import Pool, shuffled
from .workers import Crew, DemoStyle, PlayStyle

__all__ = ["STEPS", "Context", "RunError", "StepResult", "budgets_of", "draw_of", "phases_of"]


class RunError(Exception):
    """Trouble that the operator can mend: names the op and what it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step did."""

    updates: int
    """Optimiser updates that changed the weights."""
    facts: Mapping[str, float]
    """Metrics under the names that expressions use."""
    row: Mapping[str, float | int | str]
    """Metrics under the names of the run folder."""
    signs: Signs


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """All that a stage's steps have at hand."""

    plan: Plan
    stage: Stage
    crew: Crew
    progress: Progress
    reporter: Reporter
    clock: Callable[[], float]
    pools: Mapping[str, Pool]
    demonstrations: list[Episode] = field(default_factory=list)

    @classmethod
    async def of(
        cls,
        plan: Plan,
        stage: PlanStage,
        crew: Crew,
        progress: Progress,
        reporter: Reporter,
        clock: Callable[[], float],
    ) -> Context:
        settings = stage.settings
        pools = {
            name: Pool(
                environment=name,
                tasks=await crew.tasks(name, environment, environment.tasks.train, derive(plan.seed, "tasks")),
            )
            for name, environment in settings.environments.items()
        }
        return cls(
            plan=plan,
            stage=settings,
            crew=crew,
            progress=progress,
            reporter=reporter,
            clock=clock,
            pools=pools,
        )

    def value(self, number: float | Expr) -> float:
        """A number of the recipe, as it stands at this step."""
        if not isinstance(number, Expr):
            return float(number)
        value = number.number(StageFacts(self.progress, self.stage.stage, "schedule"))
        if value is None or not isfinite(value):
            at = f"stage '{self.stage.stage}', step {self.progress.step}"
            raise RunError(f"{at}: '{number.text}' has no value; expected a number")
        return value

    def names(self) -> Clock:
        return {
            "step": float(self.progress.step),
            "total_step": float(self.progress.total_step),
            "stage": self.stage.stage,
            "stage_index": float(self.progress.stage),
        }

    def seed(self, *names: str | int) -> int:
        return derive(self.plan.seed, self.stage.stage, self.progress.total_step, *names)


# --- settings ------------------------------------------------------------------------------------------------------


def horizon_of(context: Context, environment: Environment) -> int:
    turns = environment.turns if environment.turns is not None else context.stage.turns
    if turns is None:
        raise RunError(f"stage '{context.stage.stage}' has no 'turns', and neither has its environment")
    return int(context.value(turns))


def budgets_of(context: Context, environment: Environment, horizon: int | None = None) -> Budgets:
    agent = context.stage.agent
    return Budgets(
        horizon=horizon if horizon is not None else horizon_of(context, environment),
        tokens_per_turn=int(context.value(agent.tokens_per_turn)),
        context_tokens=agent.context_tokens,
        invalid_limit=agent.invalid_limit,
        on_invalid=agent.on_invalid,
        observation_tokens=agent.observation_tokens,
    )


def draw_of(context: Context) -> Draw:
    sampling = context.stage.sampling
    return Draw(
        temperature=context.value(sampling.temperature),
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        stop_texts=sampling.stop,
    )


def phases_of(plan: Plan) -> Phases:
    rollout = plan.rollout
    return Phases(
        reset_timeout_s=rollout.reset_timeout_s,
        step_timeout_s=rollout.step_timeout_s,
        episode_timeout_s=rollout.episode_timeout_s,
        retries=rollout.retries,
    )


def play_style(context: Context, episodes: int) -> PlayStyle:
    return PlayStyle(
        format=context.stage.agent.format,
        environments=context.stage.environments,
        draw=draw_of(context),
        phases=phases_of(context.plan),
        slots=context.plan.rollout.slots or episodes,
    )


def _update_settings(context: Context) -> UpdateSettings:
    algorithm, guards = context.stage.algorithm, context.plan.guards
    loss = algorithm.loss
    return UpdateSettings(
        lr=context.value(algorithm.lr) * _warm(algorithm.optimizer.warmup_steps, context.progress.version),
        max_grad_norm=algorithm.max_grad_norm,
        loss=LossSettings(
            kind=loss.kind,
            clip_low=context.value(loss.clip.low),
            clip_high=context.value(loss.clip.high),
            dual_clip=loss.clip.dual,
            aggregation=loss.aggregation,
            length=loss.length or context.stage.agent.context_tokens,
            kl_coef=context.value(algorithm.kl.coef) * context.progress.kl_scale,
            kl_estimator=algorithm.kl.estimator,
            kl_clamp=algorithm.kl.clamp,
            entropy_coef=context.value(algorithm.entropy.coef),
            temperature=context.value(context.stage.sampling.temperature),
        ),
        limits=Limits(kl=guards.kl_max, grad_norm=guards.grad_norm_max),
    )


def _warm(steps: int, done: int) -> float:
    return min(1.0, (done + 1) / (steps + 1))


# --- reinforcement -------------------------------------------------------------------------------------------------


async def rl_step(context: Context) -> StepResult:
    """Draw tasks, play them, score, compare, learn."""
    started = context.clock()
    groups, rounds = await _groups(context)
    played = context.clock()
    _refuse_faults(context, groups)
    algorithm = context.stage.algorithm
    book = scored(groups, context.stage, context.value(context.stage.reward.invalid_turn), context.names(), {})
    teaching = lesson(book.groups, context.stage, context.names())
    batches = await _with_logprobs(context, teaching.groups)
    prepared = context.clock()
    updates = await _learn(context, batches, algorithm.groups_per_update or algorithm.groups_per_step)
    learnt = context.clock()
    episodes = [episode for group in groups for episode in group.episodes]
    context.progress.episodes += len(episodes)
    context.progress.sampled_tokens += sum(episode.sampled_tokens for episode in episodes)
    measured = rollout_row(episodes) | group_row(book.groups)
    row = {
        "horizon/turns": max(episode.horizon for episode in episodes),
        **measured,
        **{f"filter/masked_{reason}": count for reason, count in sorted(teaching.masked.items())},
        "filter/kept_groups": teaching.kept_groups,
        "filter/rounds": rounds,
        **_train_row(updates),
        "timing_s/rollout": played - started,
        "timing_s/prepare": prepared - played,
        "timing_s/update": learnt - prepared,
    }
    return StepResult(
        updates=sum(update.fault is None for update in updates),
        facts=_facts(measured, updates),
        row=row,
        signs=Signs(
            fault=_worst(updates),
            entropy=_mean_of(updates, "entropy"),
            zero_std_frac=measured.get("group/zero_std_frac"),
            invalid_rate=measured.get("rollout/invalid_rate"),
        ),
    )


async def _groups(context: Context) -> tuple[list[Group], int]:
    """A step's groups; under `filter.resample` further ones until enough of them teach something."""
    algorithm = context.stage.algorithm
    groups = await _play(context, algorithm.groups_per_step, 0)
    rounds = 0
    while wanted := missing(_passing(context, groups), algorithm.groups_per_step, rounds, algorithm.filter):
        rounds += 1
        groups += await _play(context, wanted, rounds)
    return groups, rounds


def _passing(context: Context, groups: Sequence[Group]) -> int:
    book = scored(groups, context.stage, context.value(context.stage.reward.invalid_turn), context.names(), {})
    return sum(passes(group, context.stage.algorithm.filter, context.names()) for group in book.groups)


async def _play(context: Context, count: int, rounds: int) -> list[Group]:
    weights = {name: context.value(environment.weight) for name, environment in context.stage.environments.items()}
    tasks = context.progress.mixture.draw(context.pools, weights, count, context.plan.seed)
    size = context.stage.algorithm.group_size
    orders = [
        Order(
            task=task,
            size=size,
            budgets=budgets_of(context, context.stage.environments[task.environment]),
            seed=context.seed("group", rounds, at),
        )
        for at, task in enumerate(tasks)
    ]
    context.reporter.phase("rollout")
    return await context.crew.play(orders, play_style(context, count * size), context.reporter.episode)


def _refuse_faults(context: Context, groups: Sequence[Group]) -> None:
    episodes = [episode for group in groups for episode in group.episodes]
    lost = [episode for episode in episodes if not episode.ending.trainable]
    if len(lost) > context.plan.rollout.max_fault_share * len(episodes):
        raise RunError(
            f"rollout: {len(lost)} of {len(episodes)} episodes were lost to failing environments, the last one by "
            f"{lost[-1].fault}; mend the environment and resume"
        )


async def _with_logprobs(context: Context, groups: list[list[TrainSequence]]) -> list[list[TrainSequence]]:
    """Adds what the loss compares with, where it does: the reference's log-probs, and the learner's own before it."""
    algorithm = context.stage.algorithm
    flat = [sequence for group in groups for sequence in group]
    if not flat:
        return groups
    temperature = context.value(context.stage.sampling.temperature)
    if context.value(algorithm.kl.coef) > 0:
        context.reporter.phase("reference")
        found = await context.crew.logprobs(flat, temperature, reference=True)
        flat = [replace(sequence, reference_logprobs=values) for sequence, values in zip(flat, found, strict=True)]
    if _corrects(context):
        context.reporter.phase("old log-probs")
        found = await context.crew.logprobs(flat, temperature, reference=False)
        flat = [_corrected(sequence, own, algorithm.importance) for sequence, own in zip(flat, found, strict=True)]
    rest = iter(flat)
    return [[next(rest) for _ in group] for group in groups]


def _corrected(sequence: TrainSequence, own: Floats, settings: Importance) -> TrainSequence:
    assert sequence.old_logprobs is not None, "sampled sequences carry the log-probs they were drawn with"
    weights = importance_weights(own, sequence.old_logprobs, sequence.learn, settings)
    return replace(sequence, old_logprobs=own, weights=weights)


def _corrects(context: Context) -> bool:
    """In fp32 on fresh samples the sampler's log-probs are the learner's own to 1e-5: a second forward buys nothing."""
    exact = context.plan.model.dtype is DType.FP32 or (
        context.plan.model.dtype is DType.AUTO and context.plan.hardware.gpus_per_node == 0
    )
    stale = context.plan.hardware.staleness > 0
    return (stale or not exact) and context.stage.algorithm.importance.correction is not Correction.NONE


async def _learn(context: Context, groups: list[list[TrainSequence]], groups_per_update: int) -> list[UpdateMetrics]:
    """Passes over the groups in a shuffled order; stops early when the policy has moved far enough from the sampler."""
    algorithm, updates = context.stage.algorithm, list[UpdateMetrics]()
    if not groups:
        return updates
    context.reporter.phase("update")
    for epoch in range(algorithm.epochs):
        order = shuffled(len(groups), context.seed("order", epoch))
        for start in range(0, len(groups), groups_per_update):
            chosen = [groups[place] for place in order[start : start + groups_per_update]]
            sequences = [sequence for group in chosen for sequence in group]
            updates.append(await context.crew.update(sequences, _update_settings(context)))
            if algorithm.kl_stop is not None and updates[-1].sampler_kl > algorithm.kl_stop:
                return updates
    return updates


# --- imitation -----------------------------------------------------------------------------------------------------


async def sft_step(context: Context) -> StepResult:
    """One update on the next demonstrations; every one comes once per pass, newly shuffled."""
    started = context.clock()
    if not context.demonstrations:
        context.reporter.phase("demonstrations")
        context.demonstrations.extend(await _demonstrations(context))
    prepared = context.clock()
    size, position = context.stage.algorithm.batch_size, context.progress.data_position
    batch = [_imitated(context.demonstrations[_place(context, position + i)]) for i in range(size)]
    context.progress.data_position += size
    context.reporter.phase("update")
    update = await context.crew.update([sequence for part in batch for sequence in part], _imitation(context))
    return StepResult(
        updates=int(update.fault is None),
        facts={"loss": update.loss, "grad_norm": update.grad_norm, "entropy": update.entropy},
        row={
            **_train_row([update]),
            "timing_s/demonstrations": prepared - started,
            "timing_s/update": context.clock() - prepared,
        },
        signs=Signs(fault=update.fault),
    )


def _imitation(context: Context) -> UpdateSettings:
    # with advantage 1 everywhere the plain policy gradient is the cross-entropy; nothing is there to be clipped against
    return replace(_update_settings(context), loss=LossSettings(kind=LossKind.POLICY_GRADIENT), limits=Limits())


def _place(context: Context, position: int) -> int:
    passes_done, place = divmod(position, len(context.demonstrations))
    return shuffled(len(context.demonstrations), derive(context.plan.seed, context.stage.stage, passes_done))[place]


async def _demonstrations(context: Context) -> list[Episode]:
    data, agent = context.stage.algorithm.data, context.stage.agent
    tasks = _tasks_to_show(context)
    style = DemoStyle(
        format=agent.format, environments=context.stage.environments, noise=data.noise, loss_on=data.loss_on
    )
    made: list[Episode] = []
    for name, environment in context.stage.environments.items():
        horizon = None if environment.turns or context.stage.turns else _LONGEST
        budgets = budgets_of(context, environment, horizon)
        mine = [task for task in tasks if task.environment == name]
        made += await context.crew.demonstrate(mine, style, budgets, derive(context.plan.seed, "demonstrations"))
    return [episode for episode in made if data.keep is None or _kept(context, episode)]


_LONGEST = 64
"""Turns of a demonstration where the stage sets none."""


def _tasks_to_show(context: Context) -> list[Task]:
    """Each environment's training tasks, again and again with new seeds up to `data.limit`."""
    limit = context.stage.algorithm.data.limit
    tasks = []
    for name, pool in context.pools.items():
        wanted = limit // len(context.pools) if limit is not None else len(pool.tasks)
        tasks += [pool.at(position, derive(context.plan.seed, "show", name)) for position in range(wanted)]
    return tasks


def _kept(context: Context, episode: Episode) -> bool:
    keep = context.stage.algorithm.data.keep
    return keep is None or keep.holds(episode_facts(episode, context.names()))


def _imitated(episode: Episode) -> list[TrainSequence]:
    return [
        TrainSequence(ids=segment.ids, learn=segment.sampled, advantages=segment.sampled.astype("float32"))
        for segment in episode.segments
    ]


# --- what is measured ----------------------------------------------------------------------------------------------


def _train_row(updates: Sequence[UpdateMetrics]) -> dict[str, float | int]:
    if not updates:
        return {"train/updates": 0}
    return {
        "train/updates": sum(update.fault is None for update in updates),
        "train/skipped": sum(update.fault is not None for update in updates),
        "train/loss": mean(update.loss for update in updates),
        "train/policy_loss": mean(update.policy_loss for update in updates),
        "train/entropy": mean(update.entropy for update in updates),
        "train/kl": mean(update.reference_kl for update in updates),
        "train/grad_norm": mean(update.grad_norm for update in updates),
        "train/clipped_low": mean(update.clipped_low for update in updates),
        "train/clipped_high": mean(update.clipped_high for update in updates),
        "train/lr": updates[-1].lr,
        "train/tokens": sum(update.tokens for update in updates),
        "mismatch/kl": updates[0].sampler_kl,
        "mismatch/ratio_error": updates[0].ratio_error,
    }


def _facts(measured: Mapping[str, float], updates: Sequence[UpdateMetrics]) -> dict[str, float]:
    names = {
        "success": "rollout/success",
        "reward": "rollout/reward",
        "turns": "rollout/turns",
        "length": "rollout/length",
        "invalid_rate": "rollout/invalid_rate",
        "truncated_rate": "rollout/truncated_rate",
        "zero_std_frac": "group/zero_std_frac",
    }
    facts = {fact: measured[name] for fact, name in names.items() if name in measured}
    if updates:
        facts |= {
            "kl": mean(update.reference_kl for update in updates),
            "entropy": mean(update.entropy for update in updates),
            "loss": updates[-1].loss,
            "grad_norm": updates[-1].grad_norm,
        }
    return facts


def _worst(updates: Sequence[UpdateMetrics]) -> UpdateFault | None:
    faults = {update.fault for update in updates}
    return next((fault for fault in UpdateFault if fault in faults), None)


def _mean_of(updates: Sequence[UpdateMetrics], name: str) -> float | None:
    return mean(getattr(update, name) for update in updates) if updates else None


STEPS: Mapping[Kind, Callable[[Context], Awaitable[StepResult]]] = {Kind.RL: rl_step, Kind.SFT: sft_step}
