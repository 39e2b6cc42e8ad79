"""Claim: a long run holds as much after thousands of updates as after the first few hundred, and leaves nothing behind.

A tiny model learns for 2000 updates by `agym run`, with its environment on a server that the run starts, with
measurements and checkpoints on the way. Every 50 updates the whole tree of processes is examined from outside: resident
memory (RSS, and PSS, which counts shared pages once), open files, sockets, threads, processes, and the sessions that
the server itself says it holds (the fewest of a few looks, since episodes are always under way). Limits, over the last
three quarters: memory grows by less than 1 % in 1000 updates at the upper end of the slope's 95 % interval; of
everything else the fewest held at any look of the last third are no more than the fewest before, since what leaks never
goes away. After the end: no process, no listening server, no file in the folder for temporary ones, nothing in shared
memory.

    python bench/soak.py [--updates 2000] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import mean

PER_STEP = 2
RECIPE = """\
agym: 1
name: soak
model: {{init: {{layers: 1, hidden: 64, heads: 2, kv_heads: 1, tokenizer: {{kind: word, vocab: 512}}}}}}
environments: {{textcraft: {{use: textcraft, transport: http, options: {{world: small, terse: true}}}}}}
agent: {{format: plain, tokens_per_turn: 8, context_tokens: 192}}
algorithm: {{use: grpo, group_size: 4, groups_per_step: 2, groups_per_update: 1, lr: 1e-6, kl: {{coef: 0.01}}}}
reward: score - 0.1 * sampled_tokens  # so that nearly every group teaches something
schedule:
  - {{stage: imitate, until: step >= 30, algorithm: {{use: sft, batch_size: 16, lr: 1e-2, data: {{limit: 100}}}}}}
  - {{stage: soak, turns: 2, until: step >= {steps}}}
eval: {{every: 100, limit: 4, turns: 2}}
checkpoint: {{every: 100, keep: 2, episodes: eval}}
"""
LIMIT = 0.01
"""Growth of memory in 1000 updates."""
WARM_UP = 0.25
LOOKS = 50
"""At the sessions: between two steps there should be none."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--every", type=int, default=50, help="updates between two looks")
    parser.add_argument("--quick", action="store_true", help="80 updates; says nothing of slopes")
    arguments = parser.parse_args()
    updates, every = (80, 10) if arguments.quick else (arguments.updates, arguments.every)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), updates)
        samples = list(run.watch(every))
        left = run.left()
    rows = [row_of(kind, samples) for kind in KINDS]
    show(rows, samples, left)
    return 0 if arguments.quick or (all(row.holds for row in rows) and not any(left.values())) else 1


# --- what is counted -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    updates: int
    rss: int
    pss: int
    files: int
    sockets: int
    threads: int
    processes: int
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Something that must not grow."""

    name: str
    of: Callable[[Sample], int]
    is_memory: bool = False


KINDS = (
    Kind(name="RSS", of=lambda sample: sample.rss, is_memory=True),
    Kind(name="PSS", of=lambda sample: sample.pss, is_memory=True),
    Kind(name="open files", of=lambda sample: sample.files),
    Kind(name="sockets", of=lambda sample: sample.sockets),
    Kind(name="threads", of=lambda sample: sample.threads),
    Kind(name="processes", of=lambda sample: sample.processes),
    Kind(name="env sessions", of=lambda sample: sample.sessions),
)


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = stat.read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def kib(pid: int, file: str, name: str) -> int:
    # a process that has ended and was not waited for yet has no memory
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/{file}").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def handles(pid: int) -> list[str]:
    found = []
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.append(os.readlink(handle))
    return found


def sampled(pid: int, updates: int, sessions: int) -> Sample:
    pids = tree(pid)
    held = [handle for each in pids for handle in handles(each)]
    return Sample(
        updates=updates,
        rss=sum(kib(each, "status", "VmRSS") for each in pids),
        pss=sum(kib(each, "smaps_rollup", "Pss") for each in pids),
        files=len(held),
        sockets=sum(handle.startswith("socket:") for handle in held),
        threads=sum(kib(each, "status", "Threads") for each in pids),
        processes=len(pids),
        sessions=sessions,
    )


def port_of(pids: Sequence[int]) -> int:
    """Where the environment's server listens, which is one of these processes."""
    servers = [pid for pid in pids if b"agym.envs.serving.serve" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    sockets = {handle.strip("socket:[]") for pid in servers for handle in handles(pid) if handle.startswith("socket:")}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and words[9] in sockets:
            return int(words[1].rpartition(":")[2], 16)
    raise SystemExit("no server of an environment is listening")


def sessions_on(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
        return int(json.load(answer)["sessions"])


# --- the run -------------------------------------------------------------------------------------------------------


class Run:
    def __init__(self, root: Path, updates: int) -> None:
        self._root = root
        self._updates = updates
        self._shared = set(os.listdir("/dev/shm"))
        self._seen: set[int] = set()
        self._port = 0
        (root / "recipe.yaml").write_text(RECIPE.format(steps=-(-updates // PER_STEP)))
        (root / "tmp").mkdir()
        with (root / "out.txt").open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agym", "run", "recipe.yaml"],
                cwd=root,
                env={**os.environ, "TMPDIR": str(root / "tmp")},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def watch(self, every: int) -> Iterator[Sample]:
        for at in range(every, self._updates, every):
            if not self._reaches(at):
                break
            pids = tree(self._process.pid)
            self._seen.update(pids)
            self._port = self._port or port_of(pids)
            with suppress(OSError):  # the run may end while it is looked at
                yield sampled(self._process.pid, at, min(self._looks()))
        if self._process.wait(600) != 0:
            raise SystemExit(f"the run failed:\n{(self._root / 'out.txt').read_text()[-3000:]}")

    def _looks(self) -> Iterator[int]:
        for _ in range(LOOKS):
            yield (found := sessions_on(self._port))
            if found == 0:
                return
            time.sleep(0.01)

    def _reaches(self, updates: int) -> bool:
        while self._done() < updates and self._process.poll() is None:
            time.sleep(0.02)
        return self._process.poll() is None

    def _done(self) -> int:
        with suppress(OSError):
            rows = (self._root / "runs/soak/metrics.jsonl").read_bytes()
            return sum(map(int, re.findall(rb'"train/updates": (\d+)', rows)))
        return 0

    def left(self) -> Mapping[str, Sequence[str]]:
        """What is still there after the end."""
        time.sleep(1)
        return {
            "processes": [str(pid) for pid in self._seen if Path(f"/proc/{pid}").exists()],
            "servers": [str(self._port)] * _answers(self._port),
            "temporary files": [path.name for path in (self._root / "tmp").rglob("*") if path.is_file()],
            "in shared memory": sorted(filter(self._is_ours, set(os.listdir("/dev/shm")) - self._shared)),
        }

    def _is_ours(self, name: str) -> bool:
        """Intel's OpenMP names the process; what names none counts as ours."""
        owner = re.fullmatch(r"__KMP_REGISTERED_LIB_(\d+)_\d+", name)
        return owner is None or int(owner[1]) in self._seen


def _answers(port: int) -> bool:
    try:
        sessions_on(port)
    except OSError:
        return False
    return True


# --- slopes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    kind: Kind
    first: int
    last: int
    fewest: tuple[int, int]
    """At any look before the last third, and in it."""
    most: tuple[int, int]
    slope: float
    """Share of the mean by which it grows in 1000 updates."""
    low: float
    high: float
    holds: bool


def row_of(kind: Kind, samples: Sequence[Sample]) -> Row:
    kept = samples[int(len(samples) * WARM_UP) :]
    values = [kind.of(sample) for sample in kept]
    slope, error = line([sample.updates / 1000 for sample in kept], values)
    level = mean(values) or 1.0
    high = (slope + 2 * error) / level
    late = len(values) - len(values) // 3
    parts = values[:late], values[late:] or values
    fewest, most = ((of(parts[0]), of(parts[1])) for of in (min, max))
    return Row(
        kind=kind,
        first=kind.of(kept[0]),
        last=kind.of(kept[-1]),
        fewest=fewest,
        most=most,
        slope=slope / level,
        low=(slope - 2 * error) / level,
        high=high,
        holds=high < LIMIT if kind.is_memory else fewest[1] <= fewest[0],
    )


def line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Slope of the least squares, and its standard error."""
    if len(xs) < 3:
        return 0.0, 0.0
    x, y = mean(xs), mean(ys)
    spread = sum((each - x) ** 2 for each in xs)
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread
    rest = sum((b - y - slope * (a - x)) ** 2 for a, b in zip(xs, ys, strict=True))
    return slope, sqrt(rest / (len(xs) - 2) / spread)


COLUMNS = (
    *("held", "after warm-up", "at the end", "fewest before the last third, in it", "most, likewise"),
    *("growth in 1000 updates", "95 % interval"),
)


def show(rows: Sequence[Row], samples: Sequence[Sample], left: Mapping[str, Sequence[str]]) -> None:
    print(f"{len(samples)} looks, after {samples[0].updates} to {samples[-1].updates} updates\n")
    print(f"| {' | '.join(COLUMNS)} | |\n|{'---|' * (len(COLUMNS) + 1)}")
    for row in rows:
        told = [
            f"{value / 1024:.1f} MiB" if row.kind.is_memory else str(value)
            for value in (row.first, row.last, *row.fewest, *row.most)
        ]
        cells = [row.kind.name, *told[:2], ", ".join(told[2:4]), ", ".join(told[4:])]
        interval = f"{row.low:+.2%} to {row.high:+.2%}"
        verdict = "holds" if row.holds else "GROWS"
        print(f"| {' | '.join(cells)} | {row.slope:+.2%} | {interval} | {verdict} |")
    told = (f"{len(found)} {name} {' '.join(found)}".strip() for name, found in left.items())
    print(f"\nleft after the end: {', '.join(told)}")


if __name__ == "__main__":
    sys.exit(main())
