"""Rules about the run around the learning: measuring, saving, sinks, and parts that are not built yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any

from ..algorithm import Kind
from ..binding.kinds import kind_of
from ..binding.places import Path
from ..diagnostics import Diagnostic
from ..recipe import Stage
from ..source import Span
from ..suggest import did_you_mean, shown
from .case import Case, Rule
from .names import no_sink

__all__ = ["RUN_RULES"]

EVAL_METRICS = ("success", "score", "turns")
STAGE_KEYS = frozenset(each.name for each in fields(Stage))
METRIC = re.compile(r"[a-z_]+(/[A-Za-z0-9_@.-]+)+")
COUNTED_METRIC = re.compile(r"(avg|pass)@[1-9][0-9]*")


# --- measuring and saving ------------------------------------------------------------------------------------------


def eval_stages_have_settings(case: Case) -> Iterator[Diagnostic]:
    for base, stage in case.stages():
        if case.recipe.eval is None and kind_of(stage.algorithm) is Kind.EVAL:
            yield case.error(
                "conflict",
                f"stage '{stage.stage}' measures as 'eval' says, and 'eval' is null",
                *base,
                "algorithm",
                "use",
                hint="write 'eval: {}', or leave this stage out",
            )


def samples_differ(case: Case) -> Iterator[Diagnostic]:
    evaluation = case.recipe.eval
    if evaluation is None or evaluation.temperature > 0:
        return
    if evaluation.samples > 1:
        yield case.error(
            "no-effect",
            f"at temperature 0 all {evaluation.samples} samples of a task are the same",
            "eval",
            "samples",
            hint="write 'samples: 1', or a temperature above 0",
        )
    if evaluation.greedy:
        yield case.error("no-effect", "'temperature: 0' is greedy already", "eval", "greedy", hint="leave it out")


def best_metric_is_measured(case: Case) -> Iterator[Diagnostic]:
    best = case.recipe.checkpoint.best
    if best is None:
        return
    path = ("checkpoint", "best")
    example = f"for example 'eval/{next(iter(case.recipe.environments), 'all')}/success'"
    if not METRIC.fullmatch(best):
        yield case.error("unknown-metric", f"expected a metric as 'group/name', not {shown(best)}", *path, hint=example)
    elif best.startswith("eval/") and case.recipe.eval is None:
        yield case.error("unknown-metric", f"nothing is measured, so that there is no {shown(best)}", *path)
    elif best.startswith("eval/"):
        yield from _eval_metric(case, path, best, example)


def _eval_metric(case: Case, path: Path, best: str, example: str) -> Iterator[Diagnostic]:
    parts = best.split("/")
    if len(parts) != 3:
        yield case.error(
            "unknown-metric", f"expected 'eval/environment/metric', not {shown(best)}", *path, hint=example
        )
        return
    _, environment, metric = parts
    known = (*case.recipe.environments, "all")
    if environment not in known:
        message = f"there is no environment {shown(environment)} to measure in"
        at = _part(case.places.value(*path), best, len("eval/"), environment)
        yield Diagnostic(code="unknown-metric", message=message, span=at, help=did_you_mean(environment, known))
    if metric not in EVAL_METRICS and not COUNTED_METRIC.fullmatch(metric):
        hint = did_you_mean(metric, (*EVAL_METRICS, "pass@1", "avg@1"))
        at = _part(case.places.value(*path), best, len(f"eval/{environment}/"), metric)
        message = f"no measurement is called {shown(metric)}"
        yield Diagnostic(code="unknown-metric", message=message, span=at, help=hint)


def _part(written: Span, whole: str, offset: int, part: str) -> Span:
    """Where a part of a text stands; the whole value if it is not written as it is."""
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
            yield case.error(
                "duplicate-name",
                f"metrics go to {shown(sink.use)} twice",
                "logging",
                index,
                "use",
                notes=(case.note("the first is here", "logging", before, "use"),),
            )


# --- not built yet -------------------------------------------------------------------------------------------------


def built_environments(case: Case) -> Iterator[Diagnostic]:
    for path, environment in case.environments():
        info = case.catalog.environments.get(environment.use or "")
        if info is not None and not info.built:
            yield case.warning("not-built", f"this version cannot run environment '{info.name}' yet", *path, "use")


def built_parts(case: Case) -> Iterator[Diagnostic]:
    for part, what in case.catalog.unbuilt.items():
        key, _, wanted = part.partition("=")
        for path in _uses(case, tuple(key.split(".")), wanted):
            yield case.warning("not-built", f"this version cannot run '{part}' yet: {what}", *path)


def _uses(case: Case, key: Path, wanted: str) -> Iterator[Path]:
    """Where a recipe uses a part: in each stage if stages have it, else in the recipe itself."""
    if key[0] in STAGE_KEYS:
        for base, stage in case.stages():
            yield from _matches(stage, base, key, wanted)
    else:
        yield from _matches(case.recipe, (), key, wanted)


def _matches(holder: Any, base: Path, key: Path, wanted: str) -> Iterator[Path]:
    """Follows a key, `*` being any name, to values that are the wanted one or, without one, are not the default."""
    if not key:
        return
    head, rest = key[0], key[1:]
    for name, value, default in _items(holder, str(head)):
        path = (*base, name)
        if rest:
            yield from _matches(value, path, rest, wanted)
        elif _text(value) == wanted if wanted else value != default:
            yield path


def _items(holder: Any, head: str) -> Iterator[tuple[str | int, Any, Any]]:
    if isinstance(holder, tuple):
        yield from ((index, value, None) for index, value in enumerate(holder) if head == "*")
    elif isinstance(holder, dict):
        yield from ((name, value, None) for name, value in holder.items() if head in ("*", name))
    elif is_dataclass(holder) and head in holder.__dataclass_fields__:
        yield head, getattr(holder, head), _default(holder.__dataclass_fields__[head])


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return str(value).lower() if isinstance(value, bool) else str(value)


RUN_RULES: tuple[Rule, ...] = (
    eval_stages_have_settings,
    samples_differ,
    best_metric_is_measured,
    sinks_exist,
    built_environments,
    built_parts,
)
