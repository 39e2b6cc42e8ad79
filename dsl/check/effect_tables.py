"""Tables of conditions under which keys have an effect, and why they have none otherwise.

Where a section has no effect, neither do its keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ..frozen import frozen
from ..model.advantage_support import READS
from ..model.algorithm import Aggregation, Algorithm, Correction, DataSource, Kind, LossKind, LossOn, Preset
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
    Stage,
    Transport,
)
from ..model.stage_kinds import has_critic, is_given, is_played, kind_of, learns, samples
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
    "Setting",
]

C = TypeVar("C")


@frozen(kw_only=False)
class Condition(Generic[C]):
    """A key, or a section with all its keys, and the condition under which it has an effect."""

    key: str
    applies: Callable[[C], bool]
    reason: str
    """Why it has none otherwise."""


# --- algorithm -----------------------------------------------------------------------------------------------------


@frozen(kw_only=False)
class Setting:
    """An algorithm and the kind of its stage."""

    a: Algorithm
    kind: Kind

    @property
    def is_rl(self) -> bool:
        return self.kind is Kind.RL

    @property
    def is_offline(self) -> bool:
        return self.kind in (Kind.SFT, Kind.PREFERENCE, Kind.EVOLVE)

    @property
    def pulls(self) -> bool:
        return not is_zero(self.a.kl.coef)

    @property
    def measures_kl(self) -> bool:
        return self.pulls or not is_zero(self.a.kl.previous_coef)

    @property
    def many_updates(self) -> bool:
        part = self.a.groups_per_update
        return self.a.epochs > 1 or (part is not None and part < self.a.groups_per_step)

    @property
    def has_given_pairs(self) -> bool:
        return self.kind is Kind.PREFERENCE and self.a.data.source is DataSource.FILE

    @property
    def only_explores(self) -> bool:
        return self.kind is Kind.EVOLVE and self.a.data.source is DataSource.ROLLOUT

    @property
    def has_noise(self) -> bool:
        return self.a.data.source is DataSource.EXPERT and self.a.data.noise > 0


def _rl_only(key: str) -> Condition[Setting]:
    return Condition(key, lambda s: s.is_rl, "only reinforcement learning uses it")


def _read(key: str, reason: str) -> Condition[Setting]:
    return Condition(f"advantage.{key}", lambda s: key in READS[s.a.advantage.estimator], reason)


def _learning(key: str) -> Condition[Setting]:
    return Condition(key, lambda s: s.kind is not Kind.EVAL, "an 'eval' stage changes no weights")


_NO_KL = "'kl.coef' is 0"
_NO_RATIO = "'policy_gradient' has no ratio to clip"
_GIVEN = "'data.path' gives the pairs, one per line"

ALGORITHM: tuple[Condition[Setting], ...] = (
    _learning("lr"),
    _learning("max_grad_norm"),
    _learning("optimizer"),
    Condition(
        "group_size",
        lambda s: s.is_rl or (s.kind is Kind.PREFERENCE and samples(s.a)),
        "this kind of stage plays no groups; for 'agent_evol' set 'evolve.samples'",
    ),
    Condition("groups_per_step", lambda s: s.is_rl or samples(s.a), "this stage plays no training tasks"),
    _rl_only("groups_per_update"),
    Condition("batch_size", lambda s: s.is_offline, "'groups_per_update' sets the size of an update here"),
    Condition("epochs", lambda s: s.is_rl or samples(s.a), "this stage repeats its data until it ends"),
    _rl_only("kl_stop"),
    Condition("kl_stop", lambda s: s.many_updates, "a step makes a single update, so there is nothing to stop early"),
    _rl_only("advantage"),
    _read("gamma", "this estimator does not discount between tokens"),
    _read("lam", "only 'gae' and 'bilevel_gae' have a lambda"),
    _read("turn_gamma", "this estimator does not discount between turns"),
    _read("turn_lam", "only 'bilevel_gae' has a lambda over turns"),
    _read("step_weight", "only 'step_groups' compares single steps"),
    _rl_only("loss"),
    Condition("loss.ratio", lambda s: s.a.loss.kind is not LossKind.POLICY_GRADIENT, _NO_RATIO),
    Condition("loss.clip", lambda s: s.a.loss.kind is not LossKind.POLICY_GRADIENT, _NO_RATIO),
    Condition("loss.clip.dual", lambda s: s.a.loss.kind is LossKind.PPO_CLIP, "only 'ppo_clip' has a second bound"),
    Condition(
        "loss.length",
        lambda s: s.a.loss.aggregation is Aggregation.FIXED_LENGTH,
        "only 'aggregation: fixed_length' divides by it",
    ),
    Condition(
        "kl",
        lambda s: s.is_rl or s.kind is Kind.PREFERENCE,
        "only reinforcement learning and preference learning use it",
    ),
    *(
        Condition(f"kl.{key}", lambda s: s.is_rl, "preference learning uses 'preference.beta' instead")
        for key in ("coef", "estimator", "place", "clamp", "target", "target_steps", "previous_coef")
    ),
    Condition("kl.estimator", lambda s: s.measures_kl, f"{_NO_KL}, and so is 'kl.previous_coef'"),
    Condition("kl.clamp", lambda s: s.measures_kl, f"{_NO_KL}, and so is 'kl.previous_coef'"),
    Condition("kl.place", lambda s: s.pulls, f"{_NO_KL}; 'kl.previous_coef' always acts in the loss"),
    Condition("kl.previous_coef", lambda s: s.many_updates, "a step makes a single update, where this KL is always 0"),
    Condition("kl.reference", lambda s: s.pulls or s.kind is Kind.PREFERENCE, _NO_KL),
    Condition("kl.target", lambda s: s.pulls, f"{_NO_KL}, and scaling leaves it 0"),
    Condition("kl.target_steps", lambda s: s.pulls and s.a.kl.target is not None, "there is no 'kl.target'"),
    _rl_only("entropy"),
    _rl_only("filter"),
    Condition("filter.max_resamples", lambda s: s.a.filter.resample, "'filter.resample' is false"),
    _rl_only("importance"),
    *(
        Condition(
            f"importance.{key}",
            lambda s: s.a.importance.correction is not Correction.NONE,
            "'importance.correction' is 'none'",
        )
        for key in ("level", "cap", "floor")
    ),
    Condition(
        "importance.floor",
        lambda s: s.a.importance.correction is Correction.MASK,
        "only 'correction: mask' has a lower bound",
    ),
    Condition(
        "critic",
        lambda s: has_critic(s.a),
        "there is no critic without 'advantage.baseline: critic' or 'use: turn_dpo'",
    ),
    *(
        Condition(
            f"critic.{key}", lambda s: s.is_rl, "the critic of 'turn_dpo' starts from the policy and predicts no values"
        )
        for key in ("path", "clip")
    ),
    Condition("critic.privileged", lambda s: not s.is_rl, "only the critic of 'turn_dpo' can see more than the policy"),
    Condition("data", lambda s: s.is_offline, "only 'sft', preference and 'evolve' stages read it"),
    Condition("data.path", lambda s: is_given(s.a.data), "only 'source: file' and 'source: episodes' read from a path"),
    Condition(
        "data.limit",
        lambda s: s.a.data.source is not DataSource.ROLLOUT,
        "'source: rollout' uses what each step played",
    ),
    Condition(
        "data.noise", lambda s: s.a.data.source is DataSource.EXPERT, "only 'source: expert' plays actions itself"
    ),
    Condition("data.loss_on", lambda s: s.kind is not Kind.PREFERENCE, "preference learning has its own loss"),
    Condition(
        "data.loss_on",
        lambda s: s.a.data.loss_on is LossOn.ALL or s.has_noise,
        "without 'data.noise' all actions are the expert's",
    ),
    Condition("data.relabel", lambda s: s.kind is not Kind.PREFERENCE, "pairs are not relabelled"),
    Condition("data.keep", lambda s: not s.only_explores, "'evolve.keep' selects the explored episodes"),
    Condition("preference", lambda s: s.kind is Kind.PREFERENCE, "only 'dpo' and 'turn_dpo' learn from pairs"),
    Condition("data.keep", lambda s: not s.has_given_pairs, _GIVEN),
    *(
        Condition(f"preference.{key}", lambda s: not s.has_given_pairs, _GIVEN)
        for key in ("level", "margin", "pairs_per_group")
    ),
    Condition("preference.candidates", lambda s: s.a.use is Preset.TURN_DPO, "only 'turn_dpo' ranks candidate actions"),
    Condition("evolve", lambda s: s.kind is Kind.EVOLVE, "only 'agent_evol' explores in rounds"),
    Condition("evolve.keep_demonstrations", lambda s: not s.only_explores, "'data.source: rollout' gives none"),
)


# --- the other parts of a stage ------------------------------------------------------------------------------------


def _plays(stage: Stage) -> bool:
    return is_played(stage.algorithm)


_NOT_PLAYED = "this stage plays no tasks"
_NO_LESSON = "no episode played in this stage is used for training"

AGENT: tuple[Condition[Agent], ...] = (
    Condition(
        "parallel_calls", lambda a: a.format is Format.TOOLS, "only 'format: tools' allows several calls in one reply"
    ),
    Condition("memory.turns", lambda a: a.memory.kind is not MemoryKind.FULL, "'memory.kind: full' keeps every turn"),
    Condition(
        "memory.tokens", lambda a: a.memory.kind is MemoryKind.SUMMARY, "only 'memory.kind: summary' writes a summary"
    ),
    Condition("invalid_limit", lambda a: a.on_invalid is OnInvalid.TELL, "'on_invalid: end' ends at the first"),
)

STAGE: tuple[Condition[Stage], ...] = (
    Condition("turns", _plays, _NOT_PLAYED),
    Condition("until", lambda s: learns(s.algorithm), "an 'eval' stage ends on its own"),
    *(
        Condition(
            f"sampling.{key}",
            lambda s: samples(s.algorithm),
            "this stage trains on no tasks; 'eval' has its own",
        )
        for key in ("temperature", "top_p", "top_k", "min_p")
    ),
    *(
        Condition(key, lambda s: samples(s.algorithm), _NO_LESSON)
        for key in ("agent.on_truncated", "agent.on_invalid_turn", "reward")
    ),
    Condition(
        "reward.judge",
        lambda s: s.reward.source is not RewardSource.ENVIRONMENT,
        "'reward.source' is 'environment'; write 'judge' or 'pairwise' there",
    ),
    Condition(
        "reward.judge.scope",
        lambda s: s.reward.source is RewardSource.JUDGE,
        "'source: pairwise' compares whole episodes",
    ),
    Condition(
        "reward.judge.scale",
        lambda s: s.reward.source is RewardSource.JUDGE,
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
    Condition("dialect", lambda w: w.e.url is not None, "there is no 'url'"),
    Condition("kind", lambda w: w.e.url is not None, "there is no 'url'"),
    Condition("kind", lambda w: w.e.dialect is Dialect.AGENTGYM, "only 'dialect: agentgym' has kinds"),
    Condition("token", lambda w: w.e.url is not None, "there is no 'url'"),
    Condition("replicas", lambda w: w.e.url is None, "the server at 'url' is already running"),
    Condition("transport", lambda w: w.e.url is None, "a server at 'url' is always reached over HTTP"),
    Condition("options", lambda w: w.e.url is None, "the server at 'url' is already set up"),
    Condition("weight", lambda w: samples(w.stage.algorithm), "this stage plays no training tasks"),
    Condition("replicas", lambda w: w.e.transport is not Transport.INLINE, "'transport: inline' starts no server"),
)


# --- the rest of a recipe ------------------------------------------------------------------------------------------


def _has_gpus(recipe: Recipe) -> bool:
    return recipe.hardware.gpus_per_node > 0


def _is_split(recipe: Recipe) -> bool:
    return _has_gpus(recipe) and recipe.hardware.layout is Layout.SPLIT


def _has_rl(recipe: Recipe) -> bool:
    return any(kind_of(stage.algorithm) is Kind.RL for stage in recipe.schedule)


def _learns_at_all(recipe: Recipe) -> bool:
    return any(learns(stage.algorithm) for stage in recipe.schedule)


def _is_judged(recipe: Recipe) -> bool:
    judging = [each for each in recipe.schedule if each.reward.source is not RewardSource.ENVIRONMENT]
    return any(samples(stage.algorithm) for stage in judging)


def _stays(recipe: Recipe) -> bool:
    guards = recipe.guards
    return any(limit is not None for limit in (guards.entropy_min, guards.zero_std_max, guards.invalid_max))


def _may_roll_back(recipe: Recipe) -> bool:
    guards = recipe.guards
    answers = [guards.on_nan]
    answers += [guards.on_kl] if guards.kl_max is not None else []
    answers += [guards.on_grad_norm] if guards.grad_norm_max is not None else []
    return OnFault.ROLL_BACK in answers


_CPU = "'hardware.gpus_per_node' is 0"
_NOT_SPLIT = "only 'layout: split' gives sampling and learning separate GPUs"
_NO_LEARNING = "no stage changes any weights"
_NO_RL = "no stage uses reinforcement learning"

RECIPE: tuple[Condition[Recipe], ...] = (
    Condition("model.revision", lambda r: r.model.init is None, "'model.init' makes a model from scratch"),
    Condition("model.trust_remote_code", lambda r: r.model.init is None, "'model.init' makes a model from scratch"),
    Condition("model.shape", lambda r: r.model.init is None, "'model.init' gives the sizes"),
    Condition(
        "model.revision", lambda r: r.model.path is None or not is_folder(r.model.path), "'model.path' names a folder"
    ),
    Condition("model.init.tokenizer", lambda r: r.model.tokenizer is None, "'model.tokenizer' replaces it"),
    Condition("rollout.limits.score", _is_judged, "no reward comes from a judge"),
    Condition("hardware.train", _learns_at_all, _NO_LEARNING),
    Condition("hardware.gpu", _has_gpus, _CPU),
    Condition("hardware.gpu_memory_gb", _has_gpus, _CPU),
    Condition("hardware.layout", lambda r: _has_gpus(r) or r.hardware.layout is Layout.COLOCATED, _CPU),
    Condition(
        "hardware.rollout.tensor_parallel", lambda r: _has_gpus(r) or r.hardware.rollout.tensor_parallel == 1, _CPU
    ),
    Condition("hardware.rollout.memory_share", _has_gpus, f"{_CPU}; 'kv_cache_gb' sets the cache there"),
    Condition("hardware.rollout.kv_cache_gb", lambda r: not _has_gpus(r), "on GPUs 'memory_share' sets the cache"),
    Condition(
        "hardware.rollout.eager",
        lambda r: _has_gpus(r) or r.hardware.rollout.eager is not False,
        f"{_CPU}, and a CPU captures no graphs",
    ),
    Condition("hardware.rollout.gpus", _is_split, _NOT_SPLIT),
    Condition("hardware.train.gpus", _is_split, _NOT_SPLIT),
    Condition("hardware.train.offload", lambda r: _has_gpus(r) or r.hardware.train.offload is Offload.NONE, _CPU),
    Condition(
        "hardware.ray_address", lambda r: choose_launcher(r.hardware) is Launcher.RAY, "'hardware.launcher' is 'inline'"
    ),
    Condition(
        "hardware.staleness", lambda r: _has_rl(r) or r.hardware.staleness == 0, f"{_NO_RL}; nothing is sampled ahead"
    ),
    Condition("guards", _learns_at_all, _NO_LEARNING),
    Condition("guards.on_kl", lambda r: r.guards.kl_max is not None, "there is no 'guards.kl_max'"),
    Condition(
        "guards.on_grad_norm", lambda r: r.guards.grad_norm_max is not None, "there is no 'guards.grad_norm_max'"
    ),
    Condition("guards.patience", _stays, "none of 'entropy_min', 'zero_std_max' and 'invalid_max' is set"),
    Condition("guards.max_roll_backs", _may_roll_back, "no guard rolls back"),
    *(
        Condition(f"guards.{key}", _has_rl, _NO_RL)
        for key in ("kl_max", "entropy_min", "zero_std_max", "invalid_max", "mismatch_max")
    ),
    *(Condition(f"checkpoint.{key}", _learns_at_all, _NO_LEARNING) for key in ("every", "keep", "best", "export")),
    *(Condition(f"eval.{key}", _learns_at_all, _NO_LEARNING) for key in ("every", "at_start", "at_end")),
)
