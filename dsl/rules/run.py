"""Rules about the run around training: evaluation, checkpoints and sinks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from ..diagnostics import Diagnostic
from ..expression.expr import Expr, collect_names
from ..model.algorithm import Kind
from ..model.recipe import Stage
from ..model.reflect import record
from ..model.stage_kinds import has_critic, is_offline, is_played, kind_of, learns, pulls_to_reference, samples
from ..source import Span
from ..suggest import did_you_mean, quote
from ..text.node import Path
from .context import Case, Rule
from .environment import option_errors
from .names import no_sink

__all__ = ["RUN_RULES"]

EVAL_METRICS = ("success", "score", "turns", "ci_low", "ci_high", "tasks", "faults")
METRIC = re.compile(r"[A-Za-z_]+(/[A-Za-z0-9_@.-]+)+")
COUNTED_METRIC = re.compile(r"(avg|pass)@[1-9][0-9]*")


# --- evaluating and saving -----------------------------------------------------------------------------------------


def eval_stages_have_settings(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        if case.recipe.eval is None and kind_of(stage.algorithm) is Kind.EVAL:
            message = f"stage '{stage.stage}' evaluates by the settings of 'eval', but 'eval' is null"
            hint = "write 'eval: {}', or remove this stage"
            yield case.error("conflict", message, (*base, "algorithm", "use"), hint=hint)


def best_metric_exists(case: Case) -> Iterator[Diagnostic]:
    best = case.recipe.checkpoint.best
    if best is None:
        return
    group, *rest = best.split("/")
    path = ("checkpoint", "best")
    if not METRIC.fullmatch(best):
        hint = f"for example 'eval/{next(iter(case.recipe.environments), 'textcraft')}/success'"
        message = f"expected a metric written 'group/name', got {quote(best)}"
        yield case.error("unknown-metric", message, path, hint=hint)
    elif group == "eval" and case.recipe.eval is None:
        message = f"no metric {quote(best)}: this recipe has no 'eval' section"
        yield case.error("unknown-metric", message, path, hint="add 'eval: {every: 25}', or remove 'best'")
    elif group == "eval":
        yield from _eval_metric(case, path, best, rest)
    else:
        yield from _step_metric(case, path, best, group, rest)


def _eval_metric(case: Case, path: Path, best: str, rest: Sequence[str]) -> Iterator[Diagnostic]:
    if best == "eval/success":  # the mean over the environments
        return
    if len(rest) < 2:
        hint = f"write 'eval/success', or 'eval/{next(iter(case.recipe.environments), 'textcraft')}/{rest[0]}'"
        message = f"expected 'eval/environment/metric', got {quote(best)}"
        yield case.error("unknown-metric", message, path, hint=hint)
        return
    evaluation = case.recipe.eval
    assert evaluation is not None
    environment, _, horizon = rest[0].partition("@")
    if environment not in case.recipe.environments:
        message = f"no environment {quote(environment)} in this recipe"
        at = _part(case.places.value(*path), best, len("eval/"), environment)
        mean = "write 'eval/success', the mean over all environments"
        advice = mean if environment == "all" else did_you_mean(environment, case.recipe.environments)
        yield Diagnostic(code="unknown-metric", message=message, span=at, help=advice)
        return
    *shorter, longest = sorted(set(evaluation.turns or (0,)))
    if horizon and horizon not in map(str, shorter):
        hint = f"'eval/{environment}/...' is that of the longest, {longest}" if longest else "list it in 'eval.turns'"
        message = f"no evaluation is cut at {quote(horizon)} turns"
        yield case.error("unknown-metric", message, path, hint=hint)
    known = {*EVAL_METRICS, *(f"{kind}@{evaluation.samples}" for kind in ("avg", "pass") if evaluation.samples > 1)}
    known |= {f"greedy_{name}" for name in EVAL_METRICS} if evaluation.greedy else set()
    metric = "/".join(rest[1:])
    if metric not in known and not metric.startswith(("success/", "greedy_success/")):
        at = _part(case.places.value(*path), best, len(f"eval/{rest[0]}/"), metric)
        message = f"unknown evaluation metric {quote(metric)}"
        greedy = "write 'greedy: true' under 'eval'" if metric.startswith("greedy_") else None
        advice = did_you_mean(metric, known) or greedy
        if COUNTED_METRIC.fullmatch(metric):
            message = f"{quote(metric)} is never computed: 'eval.samples' is {evaluation.samples}"
            advice = f"write 'samples: {metric.rpartition('@')[2]}' under 'eval'"
        yield Diagnostic(code="unknown-metric", message=message, span=at, help=advice)


def _step_metric(case: Case, path: Path, best: str, group: str, rest: Sequence[str]) -> Iterator[Diagnostic]:
    known = STEP_METRICS.get(group)
    if known is None:
        at = _part(case.places.value(*path), best, 0, group)
        hint = did_you_mean(group, (*STEP_METRICS, "eval")) or f"known: eval, {', '.join(STEP_METRICS)}"
        yield Diagnostic(code="unknown-metric", message=f"no metrics {quote(group)}", span=at, help=hint)
        return
    names, is_measured, why = known
    name = "/".join(rest)
    per_environment = group == "rollout" and len(rest) == 2 and rest[0] in case.recipe.environments
    if names and name not in names.split() and not per_environment and not name.startswith(("fault_", "masked_")):
        at = _part(case.places.value(*path), best, len(group) + 1, name)
        hint = did_you_mean(name, names.split()) or f"known: {', '.join(names.split())}"
        yield Diagnostic(code="unknown-metric", message=f"unknown metric {quote(best)}", span=at, help=hint)
    elif not any(is_measured(stage) for _, stage in case.stages()):
        yield case.error("unknown-metric", f"{quote(best)} is never computed: {why}", path)


def _always(_: Stage) -> bool:
    return True


STEP_METRICS: Mapping[str, tuple[str, Callable[[Stage], bool], str]] = {
    "rollout": (
        (
            "episodes faults invalid_rate lag_max lag_mean length retries reward score server_troubles staleness"
            " success tokens truncated_rate turns uncontested"
        ),
        lambda stage: samples(stage.algorithm),
        "no stage plays training tasks",
    ),
    "group": ("std zero_std_frac", lambda stage: samples(stage.algorithm), "no stage plays training tasks"),
    "horizon": ("hit_rate stage turns", lambda stage: is_played(stage.algorithm), "no stage plays tasks"),
    "train": (
        "clipped_high clipped_low entropy grad_norm kl loss lr policy_loss skipped tokens updates",
        lambda stage: learns(stage.algorithm),
        "no stage changes any weights",
    ),
    "critic": (
        "accuracy clipped explained_variance grad_norm loss lr pairs value_mean",
        lambda stage: has_critic(stage.algorithm),
        "no stage has a critic",
    ),
    "preference": (
        "accuracy chosen_reward margin pairs rejected_reward",
        lambda stage: kind_of(stage.algorithm) is Kind.PREFERENCE,
        "no stage learns from pairs",
    ),
    "workers": ("discarded_steps learner_restarts replaced_learner replaced_rollout", _always, ""),
    "filter": ("kept_groups rounds", lambda stage: samples(stage.algorithm), "no stage plays training tasks"),
    "reward": ("kl kl_coef", lambda stage: pulls_to_reference(stage.algorithm), "no stage has a KL penalty"),
    "data": ("demonstrations kept passes relabelled", lambda stage: is_offline(stage.algorithm), "no stage is offline"),
    "judge": (
        "cached calls failed tokens",
        lambda stage: stage.reward.judge is not None,
        "no reward comes from a judge",
    ),
    "mismatch": ("", lambda stage: samples(stage.algorithm), "no stage plays training tasks"),
    "perf": ("tokens_per_s update_tokens_per_s", _always, ""),
    "timing_s": ("", _always, ""),
}
"""By group: the metrics of a step, the stages that measure them, and why they may be missing."""

_NUMBERS = (
    *("until", "turns", "environments.*.turns", "environments.*.weight", "agent.tokens_per_turn"),
    *("sampling.temperature", "reward.invalid_turn", "algorithm.lr", "algorithm.kl.coef"),
    *("algorithm.kl.previous_coef", "algorithm.entropy.coef", "algorithm.critic.lr"),
)
"""Keys of a stage with expressions that may read metrics."""
_PLAYED = frozenset({"success", "reward", "turns", "length", "invalid_rate", "truncated_rate", "zero_std_frac"})
_LEARNED = frozenset({"kl", "entropy", "loss", "grad_norm"})


def conditions_read_what_is_measured(case: Case) -> Iterator[Diagnostic]:
    """Report metrics in expressions that have no value up to the end of their stage."""
    missing: dict[str, str] = {} if case.recipe.eval is not None else {"eval_success": "'eval' is null"}
    missing |= dict.fromkeys(_PLAYED, "no stage so far plays training tasks")
    missing |= dict.fromkeys(_LEARNED, "no stage so far changes any weights")
    for base, stage in case.stages():
        known = (_PLAYED if samples(stage.algorithm) else frozenset()) | (
            _LEARNED if learns(stage.algorithm) else frozenset()
        )
        missing = {name: why for name, why in missing.items() if name not in known}
        for key in _NUMBERS if missing else ():
            for path, value in _values_at(stage, base, key.split(".")):
                used = collect_names(value) if isinstance(value, Expr) else frozenset()
                for name in sorted(used & missing.keys()):
                    at = _part(case.places.value(*path), name, 0, name)
                    message = f"'{name}' never has a value here: {missing[name]}"
                    advice = "add 'eval', as in eval: {every: 25}" if name == "eval_success" else None
                    yield Diagnostic(code="unknown-metric", message=message, span=at, help=advice)


def _part(written: Span, whole: str, offset: int, part: str) -> Span:
    """The span of a part of a text; the whole value if it is not written literally."""
    found = written.text.find(whole)
    start = written.start + found + offset
    return written if found < 0 else written.source.span(start, start + len(part))


# --- sinks ---------------------------------------------------------------------------------------------------------


def sinks_exist(case: Case) -> Iterator[Diagnostic]:
    first: dict[str, int] = {}
    for index, sink in enumerate(case.recipe.logging):
        before = first.setdefault(sink.use, index)
        if sink.use not in case.catalog.sinks:
            yield no_sink(sink.use, case.places.value("logging", index, "use"), case.catalog)
        elif before != index:
            message = f"sink {quote(sink.use)} is listed twice"
            notes = (case.note("the first is here", ("logging", before, "use")),)
            yield case.error("duplicate-name", message, ("logging", index, "use"), notes=notes)


def sink_options(case: Case) -> Iterator[Diagnostic]:
    for index, sink in enumerate(case.recipe.logging):
        info, path = case.catalog.sinks.get(sink.use), ("logging", index, "options")
        if info is None or "options" not in (info.settings or ()):
            continue
        for name, value in sink.options.items():
            if name in info.options:
                yield from option_errors(case, (*path, name), value, info.options[name])
            else:
                message = f"sink '{info.name}' has no option {quote(name)}"
                advice = did_you_mean(name, info.options)
                yield Diagnostic(code="unknown-option", message=message, span=case.places.key(*path, name), help=advice)


def _values_at(holder: Any, base: Path, names: Sequence[str]) -> Iterator[tuple[Path, Any]]:
    """The values at a key, `*` being any name, each with its path."""
    if not names:
        yield base, holder
        return
    for name, value in _items(holder, names[0]):
        yield from _values_at(value, (*base, name), names[1:])


def _items(holder: Any, head: str) -> Iterable[tuple[str | int, Any]]:
    if isinstance(holder, tuple | dict):
        items = enumerate(holder) if isinstance(holder, tuple) else holder.items()
        return [(name, value) for name, value in items if head in ("*", name)]
    cls = type(holder)
    return [(head, getattr(holder, head))] if is_dataclass(cls) and head in record(cls).fields else []


RUN_RULES: tuple[Rule, ...] = (
    eval_stages_have_settings,
    best_metric_exists,
    conditions_read_what_is_measured,
    sinks_exist,
    sink_options,
)
