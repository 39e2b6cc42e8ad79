"""Summary of a run from `metrics.jsonl`: success before and after by environment, time, steps, tokens, model.

The rows of all resumes count as one run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..reporting import MetricsRow
from ..text_format import format_duration, format_number, format_share, numeric, strip_control
from .run_folder import CHECKPOINTS

__all__ = [
    "EvalResult",
    "Summary",
    "eval_results",
    "model_folder",
    "read_rows",
    "summarise",
    "summarise_run",
    "summary_lines",
]

_NAME = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """One environment's success in one evaluation."""

    success: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        interval = (
            "" if self.low is None or self.high is None else f" [{format_share(self.low)}, {format_share(self.high)}]"
        )
        return format_share(self.success) + interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Totals of a run, from its rows."""

    steps: int
    seconds: float
    sampled_tokens: int
    trained_tokens: int
    evals: int
    before: tuple[tuple[str, EvalResult], ...]
    """The first evaluation, by environment (and `@turns` for horizons below the longest)."""
    after: tuple[tuple[str, EvalResult], ...]


def summarise_run(root: Path, ending: str) -> Iterator[str]:
    """Summarise the run of a folder; `ending` is 'finished', 'interrupted', 'stopped by a guard: ...'."""
    metrics = root / "metrics.jsonl"
    yield from summary_lines(summarise(read_rows(metrics)), ending, model_folder(root), metrics)


def summarise(rows: Iterable[MetricsRow]) -> Summary:
    steps = evals = 0
    seconds = sampled = trained = 0.0
    before: tuple[tuple[str, EvalResult], ...] = ()
    after = before
    for row in rows:
        seconds += (numeric(row, "timing_s/step") or 0.0) + (numeric(row, "timing_s/eval") or 0.0)
        sampled += numeric(row, "rollout/tokens") or 0.0
        trained += numeric(row, "train/tokens") or 0.0
        steps = max(steps, int(numeric(row, "total_step") or 0))
        if "eval/success" in row:
            evals += 1
            after = eval_results(row)
            before = before or after
    return Summary(
        steps=steps,
        seconds=seconds,
        sampled_tokens=int(sampled),
        trained_tokens=int(trained),
        evals=evals,
        before=before,
        after=after,
    )


def eval_results(row: MetricsRow) -> tuple[tuple[str, EvalResult], ...]:
    """Return the successes of an eval row, without the mean where there is one environment."""
    results = []
    for key in row:
        group, _, rest = key.partition("/")
        name, _, what = rest.rpartition("/")
        success = numeric(row, key)
        if group == "eval" and what == "success" and name and success is not None:
            low, high = numeric(row, f"eval/{name}/ci_low"), numeric(row, f"eval/{name}/ci_high")
            results.append((name, EvalResult(success=success, low=low, high=high)))
    return tuple(results)


def summary_lines(summary: Summary, ending: str, model: Path | None, metrics: Path) -> Iterator[str]:
    yield (
        f"{strip_control(ending, 500)}: {summary.steps:,} {'step' if summary.steps == 1 else 'steps'} in "
        f"{format_duration(summary.seconds)}, {format_number(summary.sampled_tokens)} tokens sampled, "
        f"{format_number(summary.trained_tokens)} trained on"
    )
    names = [strip_control(name, _NAME) for name, _ in summary.after]
    width, before = max(map(len, names), default=0), dict(summary.before)
    for label, (name, after) in zip(names, summary.after, strict=True):
        yield f"  {label:{width}}  success {_change(before.get(name), after, summary.evals)}"
    yield f"  metrics  {strip_control(str(metrics), 500)}"
    if model is not None:
        yield f"  model    {strip_control(str(model), 500)}"


def _change(before: EvalResult | None, after: EvalResult, evals: int) -> str:
    if before is None or evals < 2:
        return str(after)
    return f"{before} before, {after} after ({after.success - before.success:+.2f})"


def model_folder(root: Path) -> Path | None:
    """Find the newest exported model."""
    results = [path for path in (root / CHECKPOINTS).glob("step-*/model") if path.parent.name[5:].isdigit()]
    return max(results, key=lambda path: int(path.parent.name[5:]), default=None)


def read_rows(metrics: Path) -> Iterator[MetricsRow]:
    """Read the rows of a run folder, without a last line that a kill cut short."""
    if not metrics.exists():
        return
    with metrics.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)
