"""Report of checked recipes: each mistake once, however many recipes share its file, and the counts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

from ...dsl.diagnostics import Diagnostic, Severity, sort_by_place
from ...dsl.source import Span

__all__ = ["Checked", "Report", "extends_chain", "report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A recipe and its diagnostics."""

    path: str
    runs: int
    """Runs that it stands for: more than one with a matrix, 0 where it could not be read."""
    base: bool
    """It exists only to be extended."""
    failed: bool
    """It has errors, including those shown at another recipe."""
    diagnostics: tuple[Diagnostic, ...]
    idle: int = 0
    """Inherited keys without effect, which are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that one call checked."""

    checked: tuple[Checked, ...]
    problems: tuple[Diagnostic, ...]
    """Arguments that lead to no recipe."""
    left_out: int
    """YAML files that are not recipes."""

    @property
    def diagnostics(self) -> Iterator[Diagnostic]:
        yield from self.problems
        for each in self.checked:
            yield from each.diagnostics

    def shown(self, quiet: bool) -> list[Diagnostic]:
        """All, or with `quiet` the errors."""
        return [each for each in self.diagnostics if not quiet or each.severity is Severity.ERROR]

    def count(self, severity: Severity) -> int:
        return sum(each.severity is severity for each in self.diagnostics)

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.checked)


def report(
    checked: Iterable[Checked], problems: Iterable[Diagnostic] = (), left_out: int = 0, *, strict: bool = False
) -> Report:
    """Build the Report; with `strict`, warnings count as errors."""
    seen: set[Hashable] = set()
    unique = tuple(_deduplicate(each, seen, strict) for each in checked)
    return Report(checked=unique, problems=tuple(problems), left_out=left_out)


def _deduplicate(checked: Checked, seen: set[Hashable], strict: bool) -> Checked:
    diagnostics = [replace(each, severity=Severity.ERROR) if strict else each for each in checked.diagnostics]
    fresh = []
    for each in sort_by_place(diagnostics):
        # not by identity: every recipe that extends a base has its own Source of it
        mark = (each.code, each.message, each.span.source.identity, each.span.start, each.span.end)
        if mark not in seen:
            seen.add(mark)
            fresh.append(each)
    failed = any(each.severity is Severity.ERROR for each in diagnostics)
    return replace(checked, failed=failed, diagnostics=tuple(fresh))


def extends_chain(span: Span) -> Iterator[Span]:
    """The `extends` values that led to a span's file, the nearest first."""
    step = span.source.included_from
    while step is not None:
        yield step
        step = step.source.included_from
