"""Summary of a run from `metrics.jsonl`: success before and after by environment, time, steps, tokens, model.

The rows of all resumes count as one run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..reporting import MetricsRow
from ..text_format import format_count, format_duration, format_number, format_share, numeric, strip_control
from .checkpoint_files import SEAL
from .events import count_events, describe_counts
from .learning_signs import LearningSigns
from .run_folder import MODEL, FolderError, checkpoints_in

__all__ = ["EvalResult", "eval_results", "model_folder", "read_rows", "summarise_run", "summary_lines"]

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


def summarise_run(root: Path, ending: str, resume: str = "") -> Iterator[str]:
    """Summarise the run of a folder; `ending` is 'finished', 'interrupted', 'stopped by a guard: ...'."""
    metrics = root / "metrics.jsonl"
    yield from summary_lines(read_rows(metrics), ending, model_folder(root), metrics)
    if troubles := describe_counts(count_events(root)):
        yield f"  workers  {troubles}"
    if resume and ending != "finished":
        yield f"  resume   {strip_control(resume, 2000)}"


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


def summary_lines(rows: Iterable[MetricsRow], ending: str, model: Path | None, metrics: Path) -> Iterator[str]:
    steps, seconds, sampled, trained = 0, 0.0, 0.0, 0.0
    evals: list[tuple[tuple[str, EvalResult], ...]] = []
    signs = LearningSigns()
    for row in rows:
        signs.add(row)
        steps = max(steps, int(numeric(row, "total_step") or 0))
        seconds += (numeric(row, "timing_s/step") or 0.0) + (numeric(row, "timing_s/eval") or 0.0)
        sampled += numeric(row, "rollout/tokens") or 0.0
        trained += numeric(row, "train/tokens") or 0.0
        if "eval/success" in row:
            evals.append(eval_results(row))
    warnings = signs.at_end()
    with_warnings = f" with {format_count(len(warnings), 'warning')}" if warnings else ""
    yield (
        f"{strip_control(ending, 500)}{with_warnings}: {format_count(steps, 'step')} in {format_duration(seconds)}, "
        f"{format_number(int(sampled))} tokens sampled, {format_number(int(trained))} trained on"
    )
    after = evals[-1] if evals else ()
    before = dict(next(filter(None, evals), ())) if len(evals) > 1 else {}
    width = max((len(strip_control(name, _NAME)) for name, _ in after), default=0)
    for name, result in after:
        yield f"  {strip_control(name, _NAME):{width}}  success {_change(before.get(name), result)}"
    yield f"  metrics  {strip_control(str(metrics), 500)}"
    yield from (f"  warning  {text}" for text in warnings)
    if model is not None:
        yield f"  model    {strip_control(str(model), 500)}"


def _change(before: EvalResult | None, after: EvalResult) -> str:
    if before is None:
        return str(after)
    return f"{before} before, {after} after ({after.success - before.success:+.2f})"


def model_folder(root: Path) -> Path | None:
    """Find the newest exported model."""
    if (root / MODEL / SEAL).exists():
        return root / MODEL
    models = (folder / MODEL for _, folder in reversed(checkpoints_in(root)))
    return next((model for model in models if model.is_dir()), None)


def read_rows(metrics: Path) -> Iterator[MetricsRow]:
    """Read the rows of a run folder, without a last line that a kill cut short."""
    if not metrics.exists():
        return
    try:
        with metrics.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.endswith(b"\n"):
                    yield _read_row(line, metrics, number)
    except OSError as error:
        raise FolderError(f"'{metrics}' cannot be read: {error.strerror}") from error


def _read_row(line: bytes, metrics: Path, number: int) -> MetricsRow:
    try:
        row = json.loads(line)
        if isinstance(row, dict) and type(row.get("total_step")) is int:
            return row
    except (ValueError, RecursionError):
        pass
    raise FolderError(f"'{metrics}': line {number} is no row of a run: delete that line, or restore the file")
