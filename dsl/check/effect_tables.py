"""Tables of conditions under which keys have an effect, and why they have none otherwise.

Where a section has no effect, neither do its keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ..frozen import frozen
from ..model.advantage_support import READS
from ..model.algorithm import Aggregation, Algorithm, Correction, DataSource, Kind, KLPlace, LossKind, LossOn, Preset
from ..model.known_values import is_zero
from ..model.model_sizes import is_folder
from ..model.recipe import (
    Agent,
    Dialect,
    Environment,
    Format,
    Launcher,
    Layout,
    MemoryKind,
    Offload,
    OnFault,
    OnInvalid,
    Recipe,
    RewardSource,
    SaveEpisodes,
    Stage,
    Transport,
    WeightTransfer,
)
from ..model.stage_kinds import (
    has_critic,
    has_reference,
    has_teacher,
    is_given,
    is_offline,
    is_played,
    kind_of,
    learns,
    pulls_to_reference,
    samples,
    updates_often,
)
from ..planning.memory import width
from ..planning.placement import choose_launcher

__all__ = [
    "AGENT",
    "ALGORITHM",
    "ENTRY",
    "ENVIRONMENT",
    "RECIPE",
    "STAGE",
    "Condition",
    "EffectEntry",
    "EnvironmentEntry",
    "StageEntry",
]

C = TypeVar("C")


@frozen(kw_only=False)
class Condition(Generic[C]):
    """Keys, or sections with all their keys, and the condition under which they have an effect."""

    keys: str
    """One, or several with spaces between them."""
    applies: Callable[[C], bool]
    reason: str
    """Why they have none otherwise."""


# --- algorithm -----------------------------------------------------------------------------------------------------


def _is_rl(a: Algorithm) -> bool:
    return kind_of(a) is Kind.RL


def _learns_from_pairs(a: Algorithm) -> bool:
    return kind_of(a) is Kind.PREFERENCE


def _has_given_pairs(a: Algorithm) -> bool:
    return _learns_from_pairs(a) and a.data.source is DataSource.FILE


def _only_explores(a: Algorithm) -> bool:
    return kind_of(a) is Kind.EVOLVE and a.data.source is DataSource.ROLLOUT


def _measures_kl(a: Algorithm) -> bool:
    return pulls_to_reference(a) or not is_zero(a.kl.previous_coef)


def _has_kl_in_loss(a: Algorithm) -> bool:
    return (pulls_to_reference(a) and a.kl.place is KLPlace.LOSS) or not is_zero(a.kl.previous_coef)


def _has_noise(a: Algorithm) -> bool:
    return a.data.source is DataSource.EXPERT and a.data.noise > 0


def _read(key: str, reason: str) -> Condition[Algorithm]:
    return Condition(f"advantage.{key}", lambda a: key in READS[a.advantage.estimator], reason)


_NO_KL = "'kl.coef' is 0"
_NO_RATIO = "'policy_gradient' has no ratio to clip"
_GIVEN = "'data.path' gives the pairs, one per line"

ALGORITHM: tuple[Condition[Algorithm], ...] = (
    Condition("lr max_grad_norm optimizer", learns, "an 'eval' stage changes no weights"),
    Condition(
        "group_size",
        lambda a: _is_rl(a) or (_learns_from_pairs(a) and samples(a)),
        "this kind of stage plays no groups; for 'agent_evol' set 'evolve.samples'",
    ),
    Condition("groups_per_step", samples, "this stage plays no training tasks"),
    Condition("batch_size", is_offline, "'groups_per_update' sets the size of an update here"),
    Condition("epochs", samples, "this stage repeats its data until it ends"),
    Condition(
        "groups_per_update updates_per_pass kl_stop advantage loss entropy filter importance",
        _is_rl,
        "only reinforcement learning uses it",
    ),
    Condition(
        "updates_per_pass", lambda a: a.groups_per_update is None, "'groups_per_update' sets the size of an update"
    ),
    Condition("kl_stop", updates_often, "a step makes a single update, so there is nothing to stop early"),
    _read("gamma", "this estimator does not discount between tokens"),
    _read("lam", "only 'gae' and 'bilevel_gae' have a lambda"),
    _read("turn_gamma", "this estimator does not discount between turns"),
    _read("turn_lam", "only 'bilevel_gae' has a lambda over turns"),
    _read("step_weight", "only 'step_groups' compares single steps"),
    Condition("loss.ratio loss.clip", lambda a: a.loss.kind is not LossKind.POLICY_GRADIENT, _NO_RATIO),
    Condition("loss.clip", lambda a: a.loss.kind is not LossKind.SAPO, "'sapo' has 'loss.gate' in place of a clip"),
    Condition("loss.gate", lambda a: a.loss.kind is LossKind.SAPO, "only 'sapo' has a gate"),
    Condition("loss.divergence", lambda a: a.loss.kind is LossKind.DPPO, "only 'dppo' bounds a divergence"),
    Condition("loss.clip.dual", lambda a: a.loss.kind is LossKind.PPO_CLIP, "only 'ppo_clip' has a second bound"),
    Condition(
        "loss.length",
        lambda a: a.loss.aggregation is Aggregation.FIXED_LENGTH,
        "only 'aggregation: fixed_length' divides by it",
    ),
    Condition(
        "kl",
        lambda a: _is_rl(a) or _learns_from_pairs(a),
        "only reinforcement learning and preference learning use it",
    ),
    Condition(
        "kl.coef kl.estimator kl.gradient kl.place kl.clamp kl.target kl.target_steps kl.previous_coef",
        _is_rl,
        "preference learning uses 'preference.beta' instead",
    ),
    Condition("kl.estimator kl.gradient kl.clamp", _measures_kl, f"{_NO_KL}, and so is 'kl.previous_coef'"),
    Condition("kl.gradient", _has_kl_in_loss, "a KL in the reward has no gradient"),
    Condition("kl.place", pulls_to_reference, f"{_NO_KL}; 'kl.previous_coef' always acts in the loss"),
    Condition("kl.previous_coef", updates_often, "a step makes a single update, where this KL is always 0"),
    Condition("kl.reference", has_reference, _NO_KL),
    Condition("kl.reference", lambda a: not has_teacher(a), "'distill.teacher' is what the KL is measured from"),
    Condition("kl.target", pulls_to_reference, f"{_NO_KL}, and scaling leaves it 0"),
    Condition(
        "kl.target_steps", lambda a: pulls_to_reference(a) and a.kl.target is not None, "there is no 'kl.target'"
    ),
    Condition("filter.max_resamples", lambda a: a.filter.resample, "'filter.resample' is false"),
    Condition(
        "importance.level importance.cap importance.floor",
        lambda a: a.importance.correction is not Correction.NONE,
        "'importance.correction' is 'none'",
    ),
    Condition(
        "importance.floor",
        lambda a: a.importance.correction is Correction.MASK,
        "only 'correction: mask' has a lower bound",
    ),
    Condition(
        "importance.reject.geometric",
        lambda a: a.importance.correction is not Correction.NONE,
        "'importance.correction' is 'none'",
    ),
    Condition("distill", has_teacher, "only 'use: distill' has a teacher"),
    Condition("critic", has_critic, "there is no critic without 'advantage.baseline: critic' or 'use: turn_dpo'"),
    Condition(
        "critic.path critic.clip", _is_rl, "the critic of 'turn_dpo' starts from the policy and predicts no values"
    ),
    Condition(
        "critic.privileged", lambda a: not _is_rl(a), "only the critic of 'turn_dpo' can see more than the policy"
    ),
    Condition("data", is_offline, "only 'sft', preference and 'evolve' stages read it"),
    Condition("data.path", lambda a: is_given(a.data), "only 'source: file' and 'source: episodes' read from a path"),
    Condition(
        "data.limit", lambda a: a.data.source is not DataSource.ROLLOUT, "'source: rollout' uses what each step played"
    ),
    Condition("data.noise", lambda a: a.data.source is DataSource.EXPERT, "only 'source: expert' plays actions itself"),
    Condition("data.loss_on", lambda a: not _learns_from_pairs(a), "preference learning has its own loss"),
    Condition(
        "data.loss_on",
        lambda a: a.data.loss_on is LossOn.ALL or _has_noise(a),
        "without 'data.noise' all actions are the expert's",
    ),
    Condition("data.relabel", lambda a: not _learns_from_pairs(a), "pairs are not relabelled"),
    Condition("data.keep", lambda a: not _only_explores(a), "'evolve.keep' selects the explored episodes"),
    Condition("preference", _learns_from_pairs, "only 'dpo' and 'turn_dpo' learn from pairs"),
    Condition(
        "data.keep preference.level preference.margin preference.pairs_per_group",
        lambda a: not _has_given_pairs(a),
        _GIVEN,
    ),
    Condition("preference.candidates", lambda a: a.use is Preset.TURN_DPO, "only 'turn_dpo' ranks candidate actions"),
    Condition("evolve", lambda a: kind_of(a) is Kind.EVOLVE, "only 'agent_evol' explores in rounds"),
    Condition("evolve.keep_demonstrations", lambda a: not _only_explores(a), "'data.source: rollout' gives none"),
)


# --- the other parts of a stage ------------------------------------------------------------------------------------


AGENT: tuple[Condition[Agent], ...] = (
    Condition(
        "parallel_calls", lambda a: a.format is Format.TOOLS, "only 'format: tools' allows several calls in one reply"
    ),
    Condition("thoughts", lambda a: a.thinking, "under 'thinking: false' there are none"),
    Condition("memory.turns", lambda a: a.memory.kind is not MemoryKind.FULL, "'memory.kind: full' keeps every turn"),
    Condition(
        "memory.tokens", lambda a: a.memory.kind is MemoryKind.SUMMARY, "only 'memory.kind: summary' writes a summary"
    ),
    Condition("invalid_limit", lambda a: a.on_invalid is OnInvalid.TELL, "'on_invalid: end' ends at the first"),
    Condition(
        "parsing prompt observation_tokens thoughts parallel_calls guided show_actions demonstrations on_invalid"
        " invalid_limit on_invalid_turn planning reflection memory",
        lambda a: a.harness is None,
        "under 'harness' the agent writes its own messages and reads the replies itself",
    ),
    Condition(
        "harness.limits",
        lambda a: a.harness is None or a.harness.command is not None,
        "only a 'command' has processes",
    ),
)


@frozen(kw_only=False)
class StageEntry:
    """A stage, and what is known about its environments."""

    s: Stage
    asks: bool
    """One of them may leave questions to a judge."""

    @property
    def answers(self) -> bool:
        """Whether its judge answers what environments ask."""
        return self.asks and self.s.reward.judge is not None and is_played(self.s.algorithm)


_NOT_TRAINED_ON = "no episode played in this stage is used for training"

STAGE: tuple[Condition[StageEntry], ...] = (
    Condition(
        "agent.format",
        lambda e: (
            e.s.agent.harness is None or (is_offline(e.s.algorithm) and e.s.algorithm.data.source is DataSource.EXPERT)
        ),
        "under 'harness' the agent parses replies itself; 'format' applies only to an expert's demonstrations",
    ),
    Condition("turns", lambda e: is_played(e.s.algorithm), "this stage plays no tasks"),
    Condition("until", lambda e: learns(e.s.algorithm), "an 'eval' stage ends on its own"),
    Condition(
        "sampling.temperature sampling.top_p sampling.top_k sampling.min_p",
        lambda e: samples(e.s.algorithm),
        "this stage trains on no tasks; 'eval' has its own",
    ),
    Condition(
        "agent.on_truncated agent.on_invalid_turn",
        lambda e: samples(e.s.algorithm),
        _NOT_TRAINED_ON,
    ),
    Condition("reward", lambda e: samples(e.s.algorithm) or e.answers, _NOT_TRAINED_ON),
    Condition(
        "reward.source reward.episode reward.turn reward.invalid_turn reward.overlong reward.clip reward.normalise",
        lambda e: samples(e.s.algorithm),
        _NOT_TRAINED_ON,
    ),
    Condition(
        "reward.judge",
        lambda e: e.answers or e.s.reward.source is not RewardSource.ENVIRONMENT,
        "'reward.source' is 'environment'; write 'judge' or 'pairwise' there",
    ),
    Condition(
        "reward.judge.prompt reward.judge.samples reward.judge.scope reward.judge.scale",
        lambda e: e.s.reward.source is not RewardSource.ENVIRONMENT and samples(e.s.algorithm),
        "what environments ask is answered by yes or no, once",
    ),
    Condition(
        "reward.judge.scope",
        lambda e: e.s.reward.source is RewardSource.JUDGE,
        "'source: pairwise' compares whole episodes",
    ),
    Condition(
        "reward.judge.scale",
        lambda e: e.s.reward.source is RewardSource.JUDGE,
        "'source: pairwise' asks which episode is better, not for a score",
    ),
)


@frozen
class EffectEntry:
    """A stage in the recipe's schedule."""

    is_first: bool
    learns: bool
    measures: bool


ENTRY: tuple[Condition[EffectEntry], ...] = (
    Condition("shrink", lambda e: not e.is_first, "there is no stage before the first"),
    Condition("eval_every", lambda e: e.measures, "'eval' is null"),
    Condition("eval_every", lambda e: e.learns, "an 'eval' stage evaluates once"),
)


@frozen(kw_only=False)
class EnvironmentEntry:
    """An environment in a stage."""

    e: Environment
    stage: Stage


ENVIRONMENT: tuple[Condition[EnvironmentEntry], ...] = (
    # if there is no origin at all, that is the mistake, and the others follow from it
    Condition("dialect kind token", lambda w: w.e.url is not None or w.e.use is None, "there is no 'url'"),
    Condition("kind", lambda w: w.e.dialect is Dialect.AGENTGYM, "only 'dialect: agentgym' has kinds"),
    Condition("replicas", lambda w: w.e.url is None, "the server at 'url' is already running"),
    Condition("transport", lambda w: w.e.url is None, "a server at 'url' is always reached over HTTP"),
    Condition("options", lambda w: w.e.url is None, "the server at 'url' is already set up"),
    Condition("weight", lambda w: samples(w.stage.algorithm), "this stage plays no training tasks"),
    Condition("replicas", lambda w: w.e.transport is not Transport.INLINE, "'transport: inline' starts no server"),
)


# --- the rest of a recipe ------------------------------------------------------------------------------------------


def _has_gpus(recipe: Recipe) -> bool:
    return recipe.hardware.gpus_per_node > 0


def _sends_between_gpus(recipe: Recipe) -> bool:
    return _has_gpus(recipe) and choose_launcher(recipe.hardware) is Launcher.RAY


def _has_rl(recipe: Recipe) -> bool:
    return any(kind_of(stage.algorithm) is Kind.RL for stage in recipe.schedule)


def _learns_at_all(recipe: Recipe) -> bool:
    return any(learns(stage.algorithm) for stage in recipe.schedule)


def _is_judged(recipe: Recipe) -> bool:
    judging = [stage for stage in recipe.schedule if stage.reward.judge is not None]
    asked = [stage for stage in judging if stage.reward.source is RewardSource.ENVIRONMENT]
    return any(samples(stage.algorithm) for stage in judging) or any(is_played(stage.algorithm) for stage in asked)


def _stays(recipe: Recipe) -> bool:
    guards = recipe.guards
    return any(limit is not None for limit in (guards.entropy_min, guards.zero_std_max, guards.invalid_max))


def _may_roll_back(recipe: Recipe) -> bool:
    guards = recipe.guards
    answers = [guards.on_nan]
    answers += [guards.on_kl] if guards.kl_max is not None else []
    answers += [guards.on_grad_norm] if guards.grad_norm_max is not None else []
    return OnFault.ROLL_BACK in answers


def _is_drawn(recipe: Recipe) -> bool:
    return recipe.eval is None or recipe.eval.temperature > 0


_CPU = "'hardware.gpus_per_node' is 0"
_NO_RL = "no stage uses reinforcement learning"

RECIPE: tuple[Condition[Recipe], ...] = (
    Condition(
        "model.revision model.trust_remote_code",
        lambda r: r.model.init is None,
        "'model.init' makes a model from scratch",
    ),
    Condition("model.shape", lambda r: r.model.init is None, "'model.init' gives the sizes"),
    Condition(
        "model.revision", lambda r: r.model.path is None or not is_folder(r.model.path), "'model.path' names a folder"
    ),
    Condition("model.init.tokenizer", lambda r: r.model.tokenizer is None, "'model.tokenizer' replaces it"),
    Condition("rollout.limits.score", _is_judged, "no reward comes from a judge"),
    Condition(
        "hardware.train guards checkpoint.every checkpoint.keep checkpoint.keep_exports checkpoint.best"
        " checkpoint.export"
        " eval.every eval.at_start eval.at_end",
        _learns_at_all,
        "no stage changes any weights",
    ),
    Condition("checkpoint.keep_exports", lambda r: r.checkpoint.export, "'checkpoint.export' is false"),
    Condition(
        "checkpoint.episodes.train checkpoint.episodes.eval",
        lambda r: r.checkpoint.episodes.which is SaveEpisodes.SOME,
        "'checkpoint.episodes.which' decides alone",
    ),
    Condition(
        "checkpoint.episodes.train",
        lambda r: any(samples(stage.algorithm) for stage in r.schedule),
        "no stage plays training tasks",
    ),
    Condition(
        "eval.samples",
        lambda r: _is_drawn(r) or (r.eval is not None and r.eval.samples == 1),
        "at temperature 0 all samples of a task are the same",
    ),
    Condition(
        "eval.greedy",
        lambda r: _is_drawn(r) or (r.eval is not None and not r.eval.greedy),
        "'temperature: 0' is greedy already",
    ),
    Condition("hardware.gpu hardware.gpu_memory_gb", _has_gpus, _CPU),
    Condition(
        "hardware.workers_per_node",
        lambda r: not _has_gpus(r) or r.hardware.workers_per_node == 1,
        "it is for machines without GPUs, and 'gpus_per_node' is not 0; on GPUs each has a rank of the learner",
    ),
    Condition("hardware.layout", lambda r: _has_gpus(r) or r.hardware.layout is Layout.COLOCATED, _CPU),
    Condition("hardware.rollout.memory_share", _has_gpus, f"{_CPU}; 'kv_cache_gb' sets the cache there"),
    Condition("hardware.rollout.kv_cache_gb", lambda r: not _has_gpus(r), "on GPUs 'memory_share' sets the cache"),
    Condition(
        "hardware.rollout.eager",
        lambda r: _has_gpus(r) or r.hardware.rollout.eager is not False,
        f"{_CPU}, and a CPU captures no graphs",
    ),
    Condition(
        "hardware.rollout.gpus hardware.train.gpus",
        lambda r: _has_gpus(r) and r.hardware.layout is Layout.SPLIT,
        "only 'layout: split' gives sampling and learning separate GPUs",
    ),
    Condition(
        "hardware.network_gb_per_s",
        lambda r: r.hardware.gpu is not None and r.hardware.nodes > 1,
        "times are estimated for several machines with a known 'hardware.gpu'",
    ),
    Condition(
        "hardware.train.fp32_head",
        lambda r: width(r.model.dtype, _has_gpus(r)) == 2,
        "the model is in fp32, and so are its logits",
    ),
    Condition("hardware.train.offload", lambda r: _has_gpus(r) or r.hardware.train.offload is Offload.NONE, _CPU),
    Condition(
        "hardware.ray_address", lambda r: choose_launcher(r.hardware) is Launcher.RAY, "'hardware.launcher' is 'inline'"
    ),
    Condition(
        "hardware.heartbeat_s",
        lambda r: choose_launcher(r.hardware) is Launcher.RAY,
        "all workers are in one process; 'launcher: ray' gives each its own",
    ),
    Condition(
        "hardware.staleness", lambda r: _has_rl(r) or r.hardware.staleness == 0, f"{_NO_RL}; nothing is sampled ahead"
    ),
    Condition(
        "hardware.weight_transfer",
        lambda r: r.hardware.weight_transfer is WeightTransfer.AUTO or _sends_between_gpus(r),
        "weights go from one process's GPUs to another's only with GPUs and 'launcher: ray'",
    ),
    Condition(
        "hardware.in_flight",
        lambda r: r.hardware.staleness > 0 or not r.hardware.in_flight,
        "'hardware.staleness' is 0",
    ),
    Condition(
        "hardware.max_restarts",
        lambda r: choose_launcher(r.hardware) is Launcher.RAY,
        "all workers are in one process, and a learner that is lost takes the run with it",
    ),
    Condition("guards.on_kl", lambda r: r.guards.kl_max is not None, "there is no 'guards.kl_max'"),
    Condition(
        "guards.on_grad_norm", lambda r: r.guards.grad_norm_max is not None, "there is no 'guards.grad_norm_max'"
    ),
    Condition("guards.patience", _stays, "none of 'entropy_min', 'zero_std_max' and 'invalid_max' is set"),
    Condition("guards.max_roll_backs", _may_roll_back, "no guard rolls back"),
    Condition(
        "guards.kl_max guards.entropy_min guards.zero_std_max guards.invalid_max guards.mismatch_max "
        "guards.mismatch_ratio_max",
        _has_rl,
        _NO_RL,
    ),
)
