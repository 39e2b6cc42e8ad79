"""What a step of each stage costs, and what the estimate of memory depends on.

`rules` checks a recipe by the same figures that `lower` writes into the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..model.algorithm import Algorithm, Baseline, Kind
from ..model.known_values import (
    NumberOrExpr,
    StageSpan,
    Steps,
    bound_value,
    constant_value,
    locate_stages,
    tabulate_horizon,
)
from ..model.model_sizes import find_published
from ..model.plan import StageBudget
from ..model.recipe import Launcher, Layout, MemoryKind, ModelShape, Recipe, Stage, Thoughts
from ..model.stage_kinds import (
    episodes_per_task,
    groups_per_update,
    has_critic,
    has_reference,
    has_teacher,
    is_played,
    kind_of,
    learns,
    most_row_tokens,
    num_slots,
    own_end,
    recomputes_activations,
    samples,
    sides,
)
from .memory import Sizing, capacity_bytes, choose_zero, parameters, width
from .placement import choose_launcher, count_ranks

__all__ = ["budget_stages", "fixed_turn_tokens", "list_horizons", "locate_recipe_stages", "make_sizing"]


# --- a step of a stage ---------------------------------------------------------------------------------------------


def locate_recipe_stages(recipe: Recipe) -> tuple[StageSpan, ...]:
    """When each stage runs; an 'eval' stage is over after one step, exploring in rounds after its rounds."""
    return locate_stages(tuple((stage.stage, stage.until, own_end(stage.algorithm)) for stage in recipe.schedule))


def budget_stages(recipe: Recipe) -> tuple[StageBudget, ...]:
    return tuple(
        _budget(stage, span) for stage, span in zip(recipe.schedule, locate_recipe_stages(recipe), strict=True)
    )


def _budget(stage: Stage, span: StageSpan) -> StageBudget:
    algorithm = stage.algorithm
    episodes = _episodes(algorithm)
    turns = _most_turns(stage, span) if is_played(algorithm) else 0
    return StageBudget(
        episodes_per_step=episodes,
        max_turns=turns,
        max_sampled_tokens_per_step=episodes * _sampled_tokens(stage, turns) if samples(algorithm) else 0,
        max_trained_tokens_per_step=_trained_sequences(algorithm)
        * count_sequences(stage, turns)
        * stage.agent.context_tokens,
        updates_per_step=_updates(algorithm),
        max_steps=span.steps,
        horizon=_widest(stage, span) if is_played(algorithm) else (),
    )


def _episodes(algorithm: Algorithm) -> int:
    """Episodes of training tasks in one step."""
    greedy = kind_of(algorithm) is Kind.RL and algorithm.advantage.baseline is Baseline.GREEDY
    return (episodes_per_task(algorithm) + greedy) * algorithm.groups_per_step if samples(algorithm) else 0


def _updates(algorithm: Algorithm) -> int:
    """The most optimiser updates in one step."""
    kind = kind_of(algorithm)
    if kind is Kind.EVAL:
        return 0
    if kind is Kind.RL:
        per_update = groups_per_update(algorithm)
        return algorithm.epochs * -(-algorithm.groups_per_step // per_update)
    if not samples(algorithm):
        return 1
    return algorithm.epochs * -(-_sequences(algorithm) // algorithm.batch_size)


def _sequences(algorithm: Algorithm) -> int:
    """Sequences, or pairs, that the episodes of one step can give."""
    if kind_of(algorithm) is not Kind.PREFERENCE:
        return _episodes(algorithm)
    return algorithm.groups_per_step * algorithm.preference.pairs_per_group


def _trained_sequences(algorithm: Algorithm) -> int:
    """Sequences that pass through the learner in one step, both sides of a pair counted."""
    kind = kind_of(algorithm)
    if kind is Kind.EVAL:
        return 0
    if kind is Kind.RL:
        return algorithm.group_size * algorithm.groups_per_step * algorithm.epochs
    given = _sequences(algorithm) * algorithm.epochs if samples(algorithm) else algorithm.batch_size
    return sides(algorithm) * given


def _sampled_tokens(stage: Stage, turns: int) -> int:
    """Tokens that the model can sample in one episode."""
    reflection = stage.agent.reflection
    lessons = (reflection.attempts - 1) * reflection.tokens if reflection else 0
    said = turns * _per_turn(stage) * _attempts(stage) + lessons
    return min(stage.agent.context_tokens * count_sequences(stage, turns), said)


def count_sequences(stage: Stage, turns: int) -> int:
    """The most token sequences of one episode: each attempt is another, each turn that a cut memory forgets, and each
    turn whose thoughts are dropped.
    Where nothing is played they are demonstrations, which are whole."""
    if not turns:
        return 1
    memory = stage.agent.memory
    views = 1 if memory.kind is MemoryKind.FULL else max(1, turns - memory.turns + 1)
    drops = stage.agent.thinking and stage.agent.thoughts is not Thoughts.KEEP
    return (turns if drops else views) * _attempts(stage)


def _attempts(stage: Stage) -> int:
    return stage.agent.reflection.attempts if stage.agent.reflection else 1


def _per_turn(stage: Stage) -> int:
    memory, plan = stage.agent.memory, stage.agent.planning.tokens if stage.agent.planning else 0
    plan += memory.tokens if memory.kind is MemoryKind.SUMMARY else 0
    highest = bound_value(stage.agent.tokens_per_turn)[1]
    # the context also bounds an expression without an upper limit
    return plan + (int(highest) if math.isfinite(highest) else stage.agent.context_tokens)


def fixed_turn_tokens(stage: Stage) -> int | None:
    """Tokens of one turn, where they do not change with the run."""
    tokens = constant_value(stage.agent.tokens_per_turn)
    return None if tokens is None else int(tokens)


# --- the horizon ---------------------------------------------------------------------------------------------------


def list_horizons(stage: Stage) -> Iterator[tuple[str, NumberOrExpr]]:
    """The horizon in each environment of a stage: its own, or else the stage's."""
    for name, environment in stage.environments.items():
        turns = environment.turns if environment.turns is not None else stage.turns
        if turns is not None:
            yield name, turns


def _widest(stage: Stage, span: StageSpan) -> Steps:
    """The largest horizon of all environments at each step; nothing where more than steps decide it."""
    tables = [tabulate_horizon(turns, span) for _, turns in list_horizons(stage)]
    if not tables or None in tables:
        return ()
    steps = sorted({step for table in tables if table for step, _ in table})
    widest = [(step, max(_at(table, step) for table in tables if table)) for step in steps]
    return tuple(each for i, each in enumerate(widest) if i == 0 or each[1] != widest[i - 1][1])


def _at(table: Steps, step: int) -> int:
    return next(turns for start, turns in reversed(table) if start <= step)


def _most_turns(stage: Stage, span: StageSpan) -> int:
    table = _widest(stage, span)
    if table:
        return max(turns for _, turns in table)
    highest = max((bound_value(turns)[1] for _, turns in list_horizons(stage)), default=1.0)
    # each turn takes at least one token, so that the context ends what no limit does
    return int(highest) if math.isfinite(highest) else stage.agent.context_tokens


# --- memory --------------------------------------------------------------------------------------------------------


def make_sizing(recipe: Recipe, shape: ModelShape) -> Sizing:
    """What the estimate of memory depends on."""
    hardware = recipe.hardware
    algorithms = [stage.algorithm for stage in recipe.schedule]
    placed = count_ranks(hardware)
    context = max((stage.agent.context_tokens for stage in recipe.schedule), default=recipe.agent.context_tokens)
    on_gpus = hardware.gpus_per_node > 0
    cache, size = hardware.rollout.kv_cache_gb, width(recipe.model.dtype, on_gpus)
    return Sizing(
        shape=shape,
        critic=_critic_shape(recipe, shape),
        lora=recipe.model.lora,
        reference=recipe.model.lora is None and any(has_reference(a) and not has_teacher(a) for a in algorithms),
        teacher=_teacher_shape(recipe, shape),
        width=size,
        zero=choose_zero(hardware.train.zero, size, hardware.train.offload, max(placed.learners, 1)),
        offload=hardware.train.offload,
        checkpointing=recomputes_activations(hardware),
        ranks=max(placed.learners, 1),
        sequence_parallel=hardware.train.sequence_parallel,
        ranks_per_node=max(placed.learners_per_node, 1),
        tensor_parallel=hardware.rollout.tensor_parallel if on_gpus else 1,
        engines_per_node=max(placed.engines_per_node, 1),
        colocated=hardware.layout is Layout.COLOCATED,
        host=not on_gpus,
        inline=choose_launcher(hardware) is Launcher.INLINE,
        learns=any(learns(each) for each in algorithms),
        samples=recipe.eval is not None or any(is_played(each) for each in algorithms),
        micro_batch_tokens=most_row_tokens(recipe.schedule, hardware),
        context_tokens=context,
        slots_per_engine=-(-_slots(recipe, on_gpus=on_gpus) // max(placed.engines, 1)),
        cache_bytes=None if cache is None else int(cache * 10**9),
        capacity=capacity_bytes(hardware),
        memory_share=hardware.rollout.memory_share,
    )


def _critic_shape(recipe: Recipe, shape: ModelShape) -> ModelShape | None:
    """Sizes of the critic in the first stage that has one; the policy's where its own are not known."""
    for stage in recipe.schedule:
        if has_critic(stage.algorithm):
            known_critic = find_published(stage.algorithm.critic.path)
            return known_critic.shape if known_critic else shape
    return None


def _teacher_shape(recipe: Recipe, shape: ModelShape) -> ModelShape | None:
    """Sizes of the largest teacher; the policy's where its own are not known."""
    paths = [stage.algorithm.distill.teacher for stage in recipe.schedule if has_teacher(stage.algorithm)]
    known = [find_published(path) for path in paths]
    return max((each.shape if each else shape for each in known), key=parameters, default=None)


def _slots(recipe: Recipe, *, on_gpus: bool) -> int:
    stages = [(stage, _episodes(stage.algorithm)) for stage in recipe.schedule]
    return num_slots(stages, recipe.rollout, on_gpus=on_gpus)
