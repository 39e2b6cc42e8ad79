"""Which keys have an effect in which recipe: one that has none is a mistake, and the table here says why.

Enters: a Recipe and where its keys stand. Leaves: diagnostics at the keys that a person wrote in vain. A key of the
recipe itself must matter in at least one stage; a key of a stage in that stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from ..algorithm import (
    Aggregation,
    Algorithm,
    Correction,
    DataSource,
    Kind,
    LossKind,
    LossOn,
    Preset,
)
from ..binding.kinds import has_critic, is_played, kind_of, learns, samples
from ..binding.places import Path, Places, dotted
from ..diagnostics import Diagnostic
from ..frozen import frozen
from ..planning.placement import launcher
from ..planning.shapes import is_folder
from ..recipe import (
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
    Sink,
    Stage,
    Transport,
)
from .combinations import READS
from .dynamics import is_zero

__all__ = ["check", "relevant"]

C = TypeVar("C")


@frozen(kw_only=False)
class Condition(Generic[C]):
    """A key, or a section with all its keys, and when it has an effect."""

    key: str
    applies: Callable[[C], bool]
    reason: str
    """Why it has none otherwise."""


@frozen(kw_only=False)
class Keys(Generic[C]):
    """The conditions on a key and on the sections that hold it, in the order of the table; and the keys below it."""

    conditions: tuple[Condition[C], ...]
    below: Mapping[str, Keys[C]]

    def in_vain(self, settings: Iterable[C]) -> str | None:
        """Why the key matters in none of the settings; the one that comes closest says best what is missing."""
        furthest = -1
        for each in settings:
            for place, condition in enumerate(self.conditions):
                if not condition.applies(each):
                    furthest = max(furthest, place)
                    break
            else:
                return None
        return self.conditions[furthest].reason if furthest >= 0 else None


def _nested(table: Iterable[Condition[C]]) -> Keys[C]:
    return _keys([(tuple(each.key.split(".")), each) for each in table], 0)


def _keys(table: Sequence[tuple[tuple[str, ...], Condition[C]]], depth: int) -> Keys[C]:
    above = [(path, each) for path, each in table if len(path) <= depth]
    names = dict.fromkeys(path[depth] for path, _ in table if len(path) > depth)
    inner = {name: [row for row in table if len(row[0]) <= depth or row[0][depth] == name] for name in names}
    return Keys(tuple(each for _, each in above), {name: _keys(rows, depth + 1) for name, rows in inner.items()})


# --- algorithm -----------------------------------------------------------------------------------------------------


@frozen(kw_only=False)
class _Setting:
    """An algorithm in a stage of a kind."""

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


def _rl_only(key: str) -> Condition[_Setting]:
    return Condition(key, lambda s: s.is_rl, "only stages that learn by reinforcement use it")


def _read(key: str, reason: str) -> Condition[_Setting]:
    return Condition(f"advantage.{key}", lambda s: key in READS[s.a.advantage.estimator], reason)


def _learning(key: str) -> Condition[_Setting]:
    return Condition(key, lambda s: s.kind is not Kind.EVAL, "an 'eval' stage changes no weights")


_NO_KL = "'kl.coef' is 0"
_NO_RATIO = "'policy_gradient' has no ratio to clip"
_GIVEN = "the pairs are given, line by line of 'data.path'"

ALGORITHM: tuple[Condition[_Setting], ...] = (
    _learning("lr"),
    _learning("max_grad_norm"),
    _learning("optimizer"),
    Condition(
        "group_size",
        lambda s: s.is_rl or (s.kind is Kind.PREFERENCE and samples(s.a)),
        "this kind of stage plays no groups; 'evolve.samples' sets the episodes per task of 'agent_evol'",
    ),
    Condition("groups_per_step", lambda s: s.is_rl or samples(s.a), "this stage plays no training tasks"),
    _rl_only("groups_per_update"),
    Condition("batch_size", lambda s: s.is_offline, "'groups_per_update' sets the size of an update here"),
    Condition("epochs", lambda s: s.is_rl or samples(s.a), "this stage sees its data again and again until it ends"),
    _rl_only("kl_stop"),
    Condition("kl_stop", lambda s: s.many_updates, "a step makes a single update; there is nothing to end early"),
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
        "only stages that learn by reinforcement or from pairs use it",
    ),
    *(
        Condition(f"kl.{key}", lambda s: s.is_rl, "'preference.beta' is what holds a stage that learns from pairs")
        for key in ("coef", "estimator", "place", "clamp", "target", "target_steps", "previous_coef")
    ),
    Condition("kl.estimator", lambda s: s.measures_kl, f"{_NO_KL} and so is 'kl.previous_coef'"),
    Condition("kl.clamp", lambda s: s.measures_kl, f"{_NO_KL} and so is 'kl.previous_coef'"),
    Condition("kl.place", lambda s: s.pulls, f"{_NO_KL}; that from the policy before a step is always in the loss"),
    Condition("kl.previous_coef", lambda s: s.many_updates, "a step makes a single update, at the policy before it"),
    Condition("kl.reference", lambda s: s.pulls or s.kind is Kind.PREFERENCE, _NO_KL),
    Condition("kl.target", lambda s: s.pulls, f"{_NO_KL}, and no factor makes it anything else"),
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
            f"critic.{key}", lambda s: s.is_rl, "the critic of 'turn_dpo' begins as the policy, and has no values"
        )
        for key in ("path", "clip")
    ),
    Condition("critic.privileged", lambda s: not s.is_rl, "only the critic of 'turn_dpo' is told more than the policy"),
    Condition("data", lambda s: s.is_offline, "only stages that learn from given episodes read it"),
    Condition(
        "data.path",
        lambda s: s.a.data.source in (DataSource.FILE, DataSource.EPISODES),
        "only 'source: file' and 'source: episodes' read from a path",
    ),
    Condition(
        "data.limit",
        lambda s: s.a.data.source is not DataSource.ROLLOUT,
        "'source: rollout' uses what each step played",
    ),
    Condition(
        "data.noise", lambda s: s.a.data.source is DataSource.EXPERT, "only 'source: expert' plays actions itself"
    ),
    Condition("data.loss_on", lambda s: s.kind is not Kind.PREFERENCE, "the loss is that of pairs"),
    Condition(
        "data.loss_on",
        lambda s: s.a.data.loss_on is LossOn.ALL or s.has_noise,
        "without 'data.noise' all actions are the expert's",
    ),
    Condition("data.relabel", lambda s: s.kind is not Kind.PREFERENCE, "pairs are not relabelled"),
    Condition("data.keep", lambda s: not s.only_explores, "'evolve.keep' says what is kept of what was explored"),
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
ALGORITHM_KEYS = _nested(ALGORITHM)


def relevant(path: Path, algorithm: Algorithm, kind: Kind | None = None) -> str | None:
    """Why a key of `algorithm` has no effect with these settings; None if it has one."""
    keys = ALGORITHM_KEYS
    for step in path[1:] if path[:1] == ("algorithm",) else path:
        inner = keys.below.get(str(step))
        if inner is None:
            break
        keys = inner
    return keys.in_vain([_Setting(algorithm, kind or kind_of(algorithm))])


# --- the other parts of a stage ------------------------------------------------------------------------------------


def _plays(stage: Stage) -> bool:
    return is_played(stage.algorithm)


_NOT_PLAYED = "this stage plays no tasks"

AGENT: tuple[Condition[Agent], ...] = (
    Condition(
        "parallel_calls", lambda a: a.format is Format.TOOLS, "only 'format: tools' has several calls in a reply"
    ),
    Condition("memory.turns", lambda a: a.memory.kind is not MemoryKind.FULL, "'memory.kind: full' keeps every turn"),
    Condition("memory.tokens", lambda a: a.memory.kind is MemoryKind.SUMMARY, "only 'memory.kind: summary' writes one"),
    Condition("invalid_limit", lambda a: a.on_invalid is OnInvalid.TELL, "'on_invalid: end' ends it at the first"),
)
AGENT_KEYS = _nested(AGENT)

STAGE: tuple[Condition[Stage], ...] = (
    Condition("turns", _plays, _NOT_PLAYED),
    Condition("until", lambda s: learns(s.algorithm), "an 'eval' stage ends by itself"),
    *(
        Condition(f"sampling.{key}", lambda s: samples(s.algorithm), "no training task is played; 'eval' has its own")
        for key in ("temperature", "top_p", "top_k", "min_p")
    ),
    Condition("agent.on_truncated", lambda s: samples(s.algorithm), _NOT_PLAYED),
    Condition("agent.on_void_turn", lambda s: samples(s.algorithm), _NOT_PLAYED),
    Condition("reward", _plays, _NOT_PLAYED),
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
        "'source: pairwise' asks which is better, not for a score",
    ),
)
STAGE_KEYS = _nested(STAGE)

ENVIRONMENT: tuple[Condition[Environment], ...] = (
    Condition("dialect", lambda e: e.url is not None, "there is no 'url'"),
    Condition("kind", lambda e: e.url is not None, "there is no 'url'"),
    Condition("kind", lambda e: e.dialect is Dialect.AGENTGYM, "only 'dialect: agentgym' has kinds"),
    Condition("token", lambda e: e.url is not None, "there is no 'url'"),
    Condition("replicas", lambda e: e.url is None, "the server at 'url' runs already"),
    Condition("transport", lambda e: e.url is None, "a server at 'url' is always reached over HTTP"),
    Condition("options", lambda e: e.url is None, "the server at 'url' has been set up already"),
    Condition("replicas", lambda e: e.transport is not Transport.INLINE, "'transport: inline' starts no server"),
)
ENVIRONMENT_KEYS = _nested(ENVIRONMENT)


# --- the rest of a recipe ------------------------------------------------------------------------------------------


def _has_gpus(recipe: Recipe) -> bool:
    return recipe.hardware.gpus_per_node > 0


def _is_split(recipe: Recipe) -> bool:
    return _has_gpus(recipe) and recipe.hardware.layout is Layout.SPLIT


def _has_rl(recipe: Recipe) -> bool:
    return any(kind_of(stage.algorithm) is Kind.RL for stage in recipe.schedule)


def _learns_at_all(recipe: Recipe) -> bool:
    return any(learns(stage.algorithm) for stage in recipe.schedule)


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
_NOT_SPLIT = "only 'layout: split' gives sampling and learning their own GPUs"
_NO_LEARNING = "no stage changes any weights"
_NO_RL = "no stage learns by reinforcement"

RECIPE: tuple[Condition[Recipe], ...] = (
    Condition("model.revision", lambda r: r.model.init is None, "'model.init' makes a model from scratch"),
    Condition("model.trust_remote_code", lambda r: r.model.init is None, "'model.init' makes a model from scratch"),
    Condition("model.shape", lambda r: r.model.init is None, "'model.init' has the sizes"),
    Condition(
        "model.revision", lambda r: r.model.path is None or not is_folder(r.model.path), "'model.path' names a folder"
    ),
    Condition("model.init.tokenizer", lambda r: r.model.tokenizer is None, "'model.tokenizer' takes its place"),
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
        f"{_CPU}, and there no graph is captured",
    ),
    Condition("hardware.rollout.gpus", _is_split, _NOT_SPLIT),
    Condition("hardware.train.gpus", _is_split, _NOT_SPLIT),
    Condition("hardware.train.offload", lambda r: _has_gpus(r) or r.hardware.train.offload is Offload.NONE, _CPU),
    Condition(
        "hardware.ray_address", lambda r: launcher(r.hardware) is Launcher.RAY, "'hardware.launcher' is 'inline'"
    ),
    Condition(
        "hardware.staleness", lambda r: _has_rl(r) or r.hardware.staleness == 0, f"{_NO_RL}; nothing is sampled ahead"
    ),
    Condition("guards", _learns_at_all, _NO_LEARNING),
    Condition("guards.on_kl", lambda r: r.guards.kl_max is not None, "there is no 'guards.kl_max'"),
    Condition(
        "guards.on_grad_norm", lambda r: r.guards.grad_norm_max is not None, "there is no 'guards.grad_norm_max'"
    ),
    Condition(
        "guards.patience", _stays, "it serves 'entropy_min', 'zero_std_max' and 'invalid_max', and none of them is set"
    ),
    Condition("guards.max_roll_backs", _may_roll_back, "no guard rolls back"),
    *(
        Condition(f"guards.{key}", _has_rl, _NO_RL)
        for key in ("kl_max", "entropy_min", "zero_std_max", "invalid_max", "mismatch_max")
    ),
    *(Condition(f"checkpoint.{key}", _learns_at_all, _NO_LEARNING) for key in ("every", "keep", "best", "export")),
    *(Condition(f"eval.{key}", _learns_at_all, _NO_LEARNING) for key in ("every", "at_start", "at_end")),
)
RECIPE_KEYS = _nested(RECIPE)

SINK: tuple[Condition[Sink], ...] = (
    Condition("project", lambda s: s.use != "tensorboard", "tensorboard has no projects"),
    Condition("entity", lambda s: s.use not in ("tensorboard", "mlflow"), "only wandb has accounts"),
    Condition("uri", lambda s: s.use not in ("tensorboard", "wandb"), "only mlflow has a tracking address"),
    Condition("offline", lambda s: s.use not in ("tensorboard", "mlflow"), "only wandb sends anything away"),
    Condition("options", lambda s: s.use != "tensorboard", "tensorboard understands none"),
)
SINK_KEYS = _nested(SINK)


# --- the check -----------------------------------------------------------------------------------------------------


def check(recipe: Recipe, places: Places) -> Iterator[Diagnostic]:
    """A diagnostic for each key, or whole section, that a person wrote and that changes nothing."""
    yield from _stages(places, (), recipe.schedule, recipe.environments)
    for index, stage in enumerate(recipe.schedule):
        yield from _stages(places, ("schedule", index), [stage], stage.environments)
    if recipe.schedule and "shrink" in places.written("schedule", 0):
        yield _report(places, ("schedule", 0, "shrink"), "there is no stage before the first")
    yield from _unless_any(places, (), RECIPE_KEYS, [recipe])
    for index, sink in enumerate(recipe.logging):
        yield from _unless_any(places, ("logging", index), SINK_KEYS, [sink])


def _stages(places: Places, base: Path, stages: Sequence[Stage], worlds: Iterable[str]) -> Iterator[Diagnostic]:
    """What is written at `base` for the stages: in the recipe for all of them, or in one of them."""
    settings = [_Setting(each.algorithm, kind_of(each.algorithm)) for each in stages]
    yield from _unless_any(places, (*base, "algorithm"), ALGORITHM_KEYS, settings)
    yield from _unless_any(places, (*base, "agent"), AGENT_KEYS, [each.agent for each in stages])
    yield from _unless_any(places, base, STAGE_KEYS, stages)
    for name in worlds:
        present = [each.environments[name] for each in stages if name in each.environments]
        yield from _unless_any(places, (*base, "environments", name), ENVIRONMENT_KEYS, present)


def _unless_any(places: Places, base: Path, keys: Keys[C], settings: Sequence[C]) -> Iterator[Diagnostic]:
    """Reports what has an effect in none of the settings; a section once, without its keys."""
    for name in places.written(*base):
        inner = keys.below.get(name)
        if inner is None:
            continue
        reason = inner.in_vain(settings)
        if reason is not None:
            yield _report(places, (*base, name), reason)
        elif inner.below:
            yield from _unless_any(places, (*base, name), inner, settings)


def _report(places: Places, path: Path, reason: str) -> Diagnostic:
    message = f"'{dotted(path)}' has no effect: {reason}"
    return Diagnostic(code="no-effect", message=message, span=places.key(*path), help="leave it out")
