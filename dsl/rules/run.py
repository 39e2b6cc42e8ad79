"""Rules about the run around training: evaluation, checkpoints, sinks, and parts that are not built yet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any

from ..diagnostics import Diagnostic
from ..model.algorithm import Kind
from ..model.recipe import Stage
from ..model.reflect import record
from ..model.stage_kinds import kind_of
from ..source import Span
from ..suggest import did_you_mean, quote
from ..text.node import Path
from .context import Case, Rule
from .environment import option_errors
from .names import no_sink

__all__ = ["RUN_RULES"]

EVAL_METRICS = ("success", "score", "turns")
METRIC = re.compile(r"[a-z_]+(/[A-Za-z0-9_@.-]+)+")
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
    path = ("checkpoint", "best")
    example = f"for example 'eval/{next(iter(case.recipe.environments), 'all')}/success'"
    if not METRIC.fullmatch(best):
        yield case.error(
            "unknown-metric", f"expected a metric written 'group/name', got {quote(best)}", path, hint=example
        )
    elif best.startswith("eval/") and case.recipe.eval is None:
        yield case.error("unknown-metric", f"no metric {quote(best)}: this recipe has no 'eval' section", path)
    elif best.startswith("eval/"):
        yield from _eval_metric(case, path, best, example)


def _eval_metric(case: Case, path: Path, best: str, example: str) -> Iterator[Diagnostic]:
    parts = best.split("/")
    if len(parts) != 3:
        yield case.error("unknown-metric", f"expected 'eval/environment/metric', got {quote(best)}", path, hint=example)
        return
    _, environment, metric = parts
    known = (*case.recipe.environments, "all")
    if environment not in known:
        message = f"no environment {quote(environment)} in this recipe"
        at = _part(case.places.value(*path), best, len("eval/"), environment)
        yield Diagnostic(code="unknown-metric", message=message, span=at, help=did_you_mean(environment, known))
    if metric not in EVAL_METRICS and not COUNTED_METRIC.fullmatch(metric):
        hint = did_you_mean(metric, (*EVAL_METRICS, "pass@1", "avg@1"))
        at = _part(case.places.value(*path), best, len(f"eval/{environment}/"), metric)
        message = f"unknown evaluation metric {quote(metric)}"
        yield Diagnostic(code="unknown-metric", message=message, span=at, help=hint)


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


# --- not built yet -------------------------------------------------------------------------------------------------


def built_parts(case: Case) -> Iterator[Diagnostic]:
    for part, what in case.catalog.unbuilt.items():
        key = re.split("[=>]", part)[0]
        names = key.split(".")
        # what stages have is looked at in each of them, all else in the recipe itself
        in_stages = names[0] in record(Stage).fields
        for base, holder in case.stages() if in_stages else [((), case.recipe)]:
            for path, value, default in _values_at(holder, base, names, None):
                if _matches(part.removeprefix(key), value, default):
                    yield case.warning("not-built", f"this version cannot run '{part}' yet: {what}", path)


def _matches(which: str, value: Any, default: Any) -> bool:
    """Whether a value is the one of `=value`, above `>number`, or, by nothing, not the default."""
    if which.startswith(">"):
        return isinstance(value, int) and value > int(which[1:])
    written = str(value).lower() if isinstance(value, bool) else str(value)
    return which == f"={written}" if which else value != default


def _values_at(holder: Any, base: Path, names: Sequence[str], default: Any) -> Iterator[tuple[Path, Any, Any]]:
    """The values at a key, `*` being any name, each with its path and its default."""
    if not names:
        yield base, holder, default
        return
    for name, value, own in _items(holder, names[0]):
        yield from _values_at(value, (*base, name), names[1:], own)


def _items(holder: Any, head: str) -> Iterable[tuple[str | int, Any, Any]]:
    if isinstance(holder, tuple | dict):
        items = enumerate(holder) if isinstance(holder, tuple) else holder.items()
        return [(name, value, None) for name, value in items if head in ("*", name)]
    cls = type(holder)
    fields = record(cls).fields if is_dataclass(cls) else {}
    return [(head, getattr(holder, head), fields[head].default)] if head in fields else []


RUN_RULES: tuple[Rule, ...] = (
    eval_stages_have_settings,
    best_metric_exists,
    sinks_exist,
    sink_options,
    built_parts,
)
