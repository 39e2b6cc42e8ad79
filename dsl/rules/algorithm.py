"""Rules about training: parts that need or exclude each other, and signals that are always 0."""

from __future__ import annotations

from collections.abc import Iterator

from ..diagnostics import Diagnostic
from ..expression.expr import Expr, MappingFacts, collect_names
from ..model.algorithm import (
    Algorithm,
    Baseline,
    Correction,
    DataSource,
    Estimator,
    Kind,
    KLPlace,
    Level,
    LossKind,
    Normalise,
    Preset,
    Relabel,
)
from ..model.known_values import constant_value
from ..model.recipe import Reward, RewardSource
from ..model.stage_kinds import has_teacher, is_given, is_offline, kind_of, pulls_to_reference, samples, updates_often
from ..suggest import quote
from ..text.node import Path
from .context import Case, Rule

__all__ = ["ALGORITHM_RULES"]

NEED_A_CRITIC = (Estimator.GAE, Estimator.BILEVEL_GAE)
COMPARE_A_GROUP = (Baseline.GROUP_MEAN, Baseline.LEAVE_ONE_OUT)


def _algorithms(case: Case, *kinds: Kind) -> Iterator[tuple[Path, Algorithm]]:
    for base, stage in case.stages():
        if kind_of(stage.algorithm) in kinds:
            yield (*base, "algorithm"), stage.algorithm


# --- groups --------------------------------------------------------------------------------------------------------


def updates_divide_a_step(case: Case) -> Iterator[Diagnostic]:
    for path, algorithm in _algorithms(case, Kind.RL):
        part = algorithm.groups_per_update
        if part is not None and algorithm.groups_per_step % part:
            message = f"'groups_per_update' ({part}) does not divide 'groups_per_step' ({algorithm.groups_per_step})"
            divisors = [
                n for n in range(1, min(algorithm.groups_per_step, 1024) + 1) if algorithm.groups_per_step % n == 0
            ]
            hint = f"divisors of {algorithm.groups_per_step}: {', '.join(map(str, divisors[-8:]))}"
            yield case.error("not-divisible", message, (*path, "groups_per_update"), hint=hint)


def updates_share_a_step(case: Case) -> Iterator[Diagnostic]:
    """A preset's number of updates adapts to the size of a step; a person's does not."""
    for path, algorithm in _algorithms(case, Kind.RL):
        updates, step = algorithm.updates_per_pass, algorithm.groups_per_step
        written = any("updates_per_pass" in case.places.written(*base) for base in (path, ("algorithm",)))
        if written and algorithm.groups_per_update is None and step % updates:
            message = f"'updates_per_pass' ({updates}) does not divide 'groups_per_step' ({step})"
            divisors = ", ".join(str(n) for n in range(1, min(step, 1024) + 1) if step % n == 0)
            yield case.error(
                "not-divisible", message, (*path, "updates_per_pass"), hint=f"divisors of {step}: {divisors}"
            )


def clips_have_an_effect(case: Case) -> Iterator[Diagnostic]:
    """In the first update after sampling every ratio is 1, and there is no other where a step makes a single update."""
    for path, algorithm in _algorithms(case, Kind.RL):
        clip, kind = algorithm.loss.clip, algorithm.loss.kind
        is_the_point = kind in _BOUNDED or (kind is LossKind.PPO_CLIP and clip.low != clip.high)
        is_fresh = case.recipe.hardware.staleness == 0 and algorithm.importance.correction is not Correction.NONE
        if is_the_point and is_fresh and not updates_often(algorithm):
            message = f"a step makes a single update, in which every ratio is 1, so '{kind}' bounds nothing"
            hint = "write 'updates_per_pass: 4' or 'epochs: 2', or more 'groups_per_step'"
            yield case.warning("inert-clip", message, (*path, "loss", "kind"), hint=hint)


_BOUNDED = (LossKind.GSPO, LossKind.CISPO, LossKind.SAPO, LossKind.DPPO)


def rates_fit_what_is_trained(case: Case) -> Iterator[Diagnostic]:
    """LOOP's authors train adapters, at fifty times the rate of the other presets."""
    for path, algorithm in _algorithms(case, Kind.RL):
        written = any("lr" in case.places.written(*base) for base in (path, ("algorithm",)))
        if algorithm.use is Preset.LOOP and case.recipe.model.lora is None and not written:
            message = f"the learning rate of 'loop' ({algorithm.lr}) is for adapters, and all weights are trained"
            hint = "write 'lr: 1e-6', or 'model: {lora: {rank: 16}}' as its authors do"
            yield case.warning("adapter-rate", message, (*path, "use"), hint=hint)


def groups_have_a_comparison(case: Case) -> Iterator[Diagnostic]:
    for path, algorithm in _algorithms(case, Kind.RL):
        if algorithm.group_size > 1:
            continue
        if _compares_a_group(algorithm):
            message = "a group of one always has advantage 0, so nothing is learned"
            hint = "write 2 or more, or another 'advantage.baseline' and 'advantage.normalise'"
            yield case.error("no-signal", message, (*path, "group_size"), hint=hint)
        elif algorithm.advantage.estimator is Estimator.STEP_GROUPS:
            yield case.error(
                "no-signal",
                "a group of one has no other steps to compare with",
                (*path, "group_size"),
                hint="write 2 or more",
            )


def _compares_a_group(algorithm: Algorithm) -> bool:
    advantage = algorithm.advantage
    return advantage.baseline in COMPARE_A_GROUP or advantage.normalise is Normalise.GROUP_STD


def groups_pass_the_filter(case: Case) -> Iterator[Diagnostic]:
    for path, algorithm in _algorithms(case, Kind.RL):
        condition = algorithm.filter.groups
        if condition is None or algorithm.group_size > 1 or _compares_a_group(algorithm):
            continue
        if _drops_groups_of_one(condition):
            message = (
                f"{quote(condition.text)} drops every group: with 'group_size: 1' the standard deviation is always 0"
            )
            yield case.error("no-signal", message, (*path, "filter", "groups"), hint="write 'groups: \"true\"'")


def _drops_groups_of_one(condition: Expr) -> bool:
    if not collect_names(condition) <= {"std", "size"}:
        return False
    return not condition.holds(MappingFacts(scope="group", values={"std": 0.0, "size": 1.0}))


# --- advantage and loss --------------------------------------------------------------------------------------------


def estimator_has_its_baseline(case: Case) -> Iterator[Diagnostic]:
    for path, algorithm in _algorithms(case, Kind.RL):
        advantage = algorithm.advantage
        critic = advantage.baseline is Baseline.CRITIC
        if advantage.estimator in NEED_A_CRITIC and not critic:
            message = f"'{advantage.estimator}' needs the values of a critic"
            hint = "write 'baseline: critic', or another estimator"
            yield case.error("conflict", message, (*path, "advantage", "estimator"), hint=hint)
        if advantage.estimator is Estimator.STEP_GROUPS and critic:
            message = "'step_groups' compares steps within a group, so it takes no critic as its baseline"
            yield case.error("conflict", message, (*path, "advantage", "baseline"), hint="write 'baseline: group_mean'")


def a_run_has_one_critic(case: Case) -> Iterator[Diagnostic]:
    critics = [each for each in _algorithms(case, Kind.RL) if each[1].advantage.baseline is Baseline.CRITIC]
    for path, algorithm in critics[1:]:
        if algorithm.critic.path != critics[0][1].critic.path:
            message = "an earlier stage has a critic with another backbone, and a run has only one critic"
            hint = "write the same 'critic.path' in every stage, or once in the recipe's 'algorithm'"
            yield case.error("conflict", message, (*path, "critic", "path"), hint=hint)


def ratio_fits_the_loss(case: Case) -> Iterator[Diagnostic]:
    needed = {
        LossKind.GSPO: Level.EPISODE,
        LossKind.CISPO: Level.TOKEN,
        LossKind.SAPO: Level.TOKEN,
        LossKind.DPPO: Level.TOKEN,
    }
    for path, algorithm in _algorithms(case, Kind.RL):
        level = needed.get(algorithm.loss.kind)
        if level is not None and algorithm.loss.ratio is not level:
            message = f"'{algorithm.loss.kind}' is defined by a ratio per {level}, not per {algorithm.loss.ratio}"
            hint = f"write 'ratio: {level}', or 'kind: ppo_clip' with this ratio"
            yield case.error("conflict", message, (*path, "loss", "ratio"), hint=hint)


def repeated_updates_have_a_ratio(case: Case) -> Iterator[Diagnostic]:
    for path, algorithm in _algorithms(case, Kind.RL):
        if updates_often(algorithm) and algorithm.loss.kind is LossKind.POLICY_GRADIENT:
            message = "a step makes several updates, but 'policy_gradient' has no ratio to correct the later ones"
            hint = "write 'kind: ppo_clip', or one update per step"
            yield case.warning("off-policy", message, (*path, "loss", "kind"), hint=hint)


def penalty_has_tokens_to_sit_on(case: Case) -> Iterator[Diagnostic]:
    for path, algorithm in _algorithms(case, Kind.RL):
        in_reward = pulls_to_reference(algorithm) and algorithm.kl.place is KLPlace.REWARD
        if in_reward and algorithm.advantage.estimator is Estimator.STEP_GROUPS:
            yield case.error(
                "conflict",
                "'step_groups' compares rewards from the environment, so the KL penalty cannot be part of the reward",
                (*path, "kl", "place"),
                hint="write 'place: loss'",
            )


# --- off-policy ----------------------------------------------------------------------------------------------------


def stale_episodes_are_corrected(case: Case) -> Iterator[Diagnostic]:
    staleness = case.recipe.hardware.staleness
    if staleness == 0:
        return
    for path, algorithm in _algorithms(case, Kind.RL):
        if algorithm.importance.correction is Correction.NONE:
            message = f"episodes may be up to {staleness} version{'s' * (staleness > 1)} old, with no correction for it"
            hint = "write 'correction: truncate', or 'hardware.staleness: 0'"
            notes = (case.note("the staleness", ("hardware", "staleness")),)
            yield case.error("off-policy", message, (*path, "importance", "correction"), hint=hint, notes=notes)


def students_have_a_teacher(case: Case) -> Iterator[Diagnostic]:
    for path, algorithm in _algorithms(case, Kind.RL):
        if not has_teacher(algorithm):
            continue
        if algorithm.distill.teacher is None:
            hint = "add 'distill: {teacher: PATH}', a folder or hub id with the policy's tokenizer"
            yield case.error("missing-key", "'distill' needs a teacher", (*path, "use"), hint=hint)
        if not pulls_to_reference(algorithm):
            message = "with 'kl.coef: 0' the teacher is never asked"
            yield case.error("no-signal", message, (*path, "kl", "coef"), hint="write 'coef: 1.0'")


def weights_have_a_range(case: Case) -> Iterator[Diagnostic]:
    for path, algorithm in _algorithms(case, Kind.RL):
        importance = algorithm.importance
        if importance.correction is Correction.MASK and importance.floor >= importance.cap:
            message = f"'floor' ({importance.floor:g}) must be below 'cap' ({importance.cap:g})"
            yield case.error(
                "bad-range",
                message,
                (*path, "importance", "floor"),
                hint="write 'floor: 0.5' and 'cap: 2.0', for example",
            )
        accepted = importance.reject.geometric
        if accepted is not None and accepted[0] >= accepted[1]:
            yield case.error(
                "bad-range", _order(accepted), (*path, "importance", "reject", "geometric"), hint=_swapped(accepted)
            )


# --- sampling ------------------------------------------------------------------------------------------------------


def sampling_explores(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        if samples(stage.algorithm) and constant_value(stage.sampling.temperature) == 0:
            message = "at temperature 0 all attempts are the same, so there is nothing to compare"
            hint = "write 1.0; 'eval.temperature' may be 0"
            yield case.error("no-signal", message, (*base, "sampling", "temperature"), hint=hint)


def sampled_distribution_is_the_trained_one(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        if kind_of(stage.algorithm) is not Kind.RL:
            continue
        cut = {"top_p": stage.sampling.top_p < 1, "top_k": stage.sampling.top_k > 0, "min_p": stage.sampling.min_p > 0}
        for key in (key for key, is_cut in cut.items() if is_cut):
            yield case.warning(
                "cut-sampling",
                f"'{key}' drops tokens that the learner still counts, so the sampled and the trained policy differ",
                (*base, "sampling", key),
            )


# --- reward --------------------------------------------------------------------------------------------------------


def _rewards(case: Case) -> Iterator[tuple[Path, Reward, Algorithm]]:
    for base, stage in case.stages():
        if samples(stage.algorithm):
            yield base, stage.reward, stage.algorithm


def judge_is_given(case: Case) -> Iterator[Diagnostic]:
    for base, reward, _ in _rewards(case):
        if reward.source is not RewardSource.ENVIRONMENT and reward.judge is None:
            message = f"'source: {reward.source}' needs a judge"
            hint = "add 'judge: {url: ..., model: ...}'"
            yield case.error("missing-key", message, (*base, "reward", "source"), hint=hint)


def pairs_are_compared(case: Case) -> Iterator[Diagnostic]:
    for base, reward, algorithm in _rewards(case):
        pairwise = reward.source is RewardSource.PAIRWISE
        if algorithm.use is Preset.MTPO and not pairwise:
            message = "'mtpo' needs a judge that compares episodes in pairs"
            hint = "write 'reward: {source: pairwise, judge: {...}}'"
            yield case.error("conflict", message, (*base, "algorithm", "use"), hint=hint)
        if pairwise and kind_of(algorithm) in (Kind.RL, Kind.PREFERENCE) and algorithm.group_size < 2:
            message = "a group of one has no pair to compare"
            yield case.error("no-signal", message, (*base, "algorithm", "group_size"), hint="write 2 or more")


def reward_ranges_are_in_order(case: Case) -> Iterator[Diagnostic]:
    for base, reward, _ in _rewards(case):
        if reward.clip is not None and reward.clip[0] >= reward.clip[1]:
            yield case.error("bad-range", _order(reward.clip), (*base, "reward", "clip"), hint=_swapped(reward.clip))
        if reward.judge is not None and reward.judge.scale[0] >= reward.judge.scale[1]:
            yield case.error(
                "bad-range",
                _order(reward.judge.scale),
                (*base, "reward", "judge", "scale"),
                hint=_swapped(reward.judge.scale),
            )


def _swapped(pair: tuple[float, float]) -> str | None:
    return f"write [{pair[1]:g}, {pair[0]:g}]" if pair[0] > pair[1] else "write two different numbers"


def _order(pair: tuple[float, float]) -> str:
    return f"expected the lower bound first, got {pair[0]:g} and {pair[1]:g}"


# --- learning from given episodes ----------------------------------------------------------------------------------


def data_has_a_path(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        data = stage.algorithm.data
        if is_offline(stage.algorithm) and is_given(data) and data.path is None:
            message = f"'source: {data.source}' needs a 'path'"
            hint = "for example 'path: data/demonstrations.jsonl'"
            yield case.error("missing-key", message, (*base, "algorithm", "data", "source"), hint=hint)


def hindsight_has_episodes(case: Case) -> Iterator[Diagnostic]:
    for path, algorithm in _algorithms(case, Kind.SFT, Kind.EVOLVE):
        data = algorithm.data
        if data.relabel is Relabel.HINDSIGHT and is_given(data):
            message = "only episodes that the stage itself plays can be relabelled"
            hint = "write 'source: expert' or 'source: rollout', or 'relabel: none'"
            yield case.error("conflict", message, (*path, "data", "source"), hint=hint)


def pairs_can_be_made(case: Case) -> Iterator[Diagnostic]:
    for path, algorithm in _algorithms(case, Kind.PREFERENCE):
        if algorithm.data.source is DataSource.EXPERT:
            message = "'source: expert' gives only the best episode of a task, with no worse one to pair it with"
            hint = "write 'source: rollout', or 'source: episodes' to use those of a run"
            yield case.error("conflict", message, (*path, "data", "source"), hint=hint)
        if samples(algorithm) and algorithm.group_size < 2:
            yield case.error(
                "no-signal", "a group of one has no pair to learn from", (*path, "group_size"), hint="write 2 or more"
            )
        if algorithm.preference.level is Level.TOKEN:
            message = "expected one of episode, turn, got 'token'"
            yield case.error("bad-value", message, (*path, "preference", "level"), hint="write 'episode' or 'turn'")


def candidates_can_be_drawn(case: Case) -> Iterator[Diagnostic]:
    for path, algorithm in _algorithms(case, Kind.PREFERENCE):
        if algorithm.use is not Preset.TURN_DPO:
            continue
        if is_given(algorithm.data):
            message = "'turn_dpo' samples candidates for turns that were just played"
            hint = "write 'source: rollout', or 'use: dpo'"
            yield case.error("conflict", message, (*path, "data", "source"), hint=hint)
        if algorithm.preference.level is Level.EPISODE:
            message = "'turn_dpo' pairs turns, not episodes"
            hint = "write 'level: turn', or 'use: dpo'"
            yield case.error("conflict", message, (*path, "preference", "level"), hint=hint)
        if algorithm.preference.candidates < 2:
            yield case.error(
                "no-signal",
                "one candidate is not enough to rank",
                (*path, "preference", "candidates"),
                hint="write 2 or more",
            )


ALGORITHM_RULES: tuple[Rule, ...] = (
    updates_divide_a_step,
    updates_share_a_step,
    clips_have_an_effect,
    rates_fit_what_is_trained,
    groups_have_a_comparison,
    groups_pass_the_filter,
    estimator_has_its_baseline,
    a_run_has_one_critic,
    ratio_fits_the_loss,
    repeated_updates_have_a_ratio,
    penalty_has_tokens_to_sit_on,
    stale_episodes_are_corrected,
    students_have_a_teacher,
    weights_have_a_range,
    sampling_explores,
    sampled_distribution_is_the_trained_one,
    judge_is_given,
    pairs_are_compared,
    reward_ranges_are_in_order,
    data_has_a_path,
    hindsight_has_episodes,
    pairs_can_be_made,
    candidates_can_be_drawn,
)
