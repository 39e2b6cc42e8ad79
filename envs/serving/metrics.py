"""Counters of a server, in Prometheus's text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from ..errors import EnvFault

__all__ = ["Answers", "Sample", "format_samples"]

_EDGES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    value: float
    kind: str
    says: str
    labels: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""
    """Of the name, for the parts of a histogram."""


class Answers:
    """Counts and durations of answered requests."""

    def __init__(self) -> None:
        self._statuses: Counter[tuple[str, int]] = Counter()
        self._faults: Counter[str] = Counter()
        self._buckets = [0] * (len(_EDGES_S) + 1)
        self._seconds = 0.0

    def count(self, dialect: str, status: int, seconds: float) -> None:
        self._statuses[dialect, status] += 1
        self._buckets[bisect_left(_EDGES_S, seconds)] += 1
        self._seconds += seconds

    def count_fault(self, fault: EnvFault) -> None:
        self._faults[fault.kind.value] += 1

    def samples(self) -> Iterator[Sample]:
        for (dialect, status), count in sorted(self._statuses.items()):
            labels = {"dialect": dialect, "status": str(status)}
            yield Sample("agym_env_answers_total", count, "counter", "requests answered", labels)
        for kind, count in sorted(self._faults.items()):
            yield Sample("agym_env_faults_total", count, "counter", "troubles of the environment", {"kind": kind})
        histogram = ("agym_env_answer_seconds", "histogram", "how long an answer took")
        for edge, count in zip((*map(str, _EDGES_S), "+Inf"), accumulate(self._buckets), strict=True):
            yield _part(histogram, count, "_bucket", {"le": edge})
        yield _part(histogram, self._seconds, "_sum")
        yield _part(histogram, sum(self._buckets), "_count")


def _part(of: tuple[str, str, str], value: float, suffix: str, labels: Mapping[str, str] | None = None) -> Sample:
    name, kind, says = of
    return Sample(name, value, kind, says, labels or {}, suffix)


def format_samples(samples: Iterable[tuple[str, Sample]]) -> bytes:
    """Format samples with their environment's name; those of one metric are kept together."""
    families: dict[str, list[str]] = {}
    for env, sample in samples:
        head = [f"# HELP {sample.name} {sample.says}", f"# TYPE {sample.name} {sample.kind}"]
        labels = ",".join(f'{name}="{value}"' for name, value in {"env": env, **sample.labels}.items())
        families.setdefault(sample.name, head).append(f"{sample.name}{sample.suffix}{{{labels}}} {sample.value}")
    return "".join(f"{line}\n" for lines in families.values() for line in lines).encode("utf-8")
