"""This checkout against another revision: cold `agym validate`, seconds of imitation, rollouts and updates, in turn.

    python bench/against.py REVISION [--validate 15] [--runs 5] [--steps 20]

Both are whole processes of this Python with the sources of either side, one after the other, so that a machine whose
speed drifts slows both. Each ratio is of a pair; under 1 this checkout is quicker. Rollouts and updates are compared
per token, as what an agent says after the same imitation may differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
RECIPE = """
agym: 1
name: paired
extends: quickstart
algorithm: {{use: grpo}}
schedule:
  - stage: imitate
    until: step >= 150
    algorithm:
      {{use: sft, batch_size: 8, lr: "cosine(5e-3, 2.5e-4, 150)",
       data: {{source: expert, limit: 1200, noise: 0.6, loss_on: all}}}}
  - {{stage: exploit, turns: 8, until: step >= {steps}}}
eval: null
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare this checkout with another revision.")
    parser.add_argument("revision")
    parser.add_argument("--validate", type=int, default=15, help="pairs of cold validations")
    parser.add_argument("--runs", type=int, default=5, help="pairs of training runs")
    parser.add_argument("--steps", type=int, default=20, help="steps after the imitation, the first five not counted")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="agym-against-") as folder:
        sides = [_side(Path(folder) / "this", "HEAD"), _side(Path(folder) / "other", arguments.revision)]
        for side in sides:
            validate(side)  # modules are compiled, as after an install
        _print("validate, cold", [[validate(side) for side in sides] for _ in range(arguments.validate)])
        runs = [[train(side, arguments.steps) for side in sides] for _ in range(arguments.runs)]
        for what in runs[0][0] if runs else ():
            _print(what, [[seconds[what] for seconds in pair] for pair in runs])


def _side(folder: Path, revision: str) -> Path:
    """The sources of a revision, importable as `agym` from the folder that is returned."""
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as sources:
        sources.extractall(folder / "agym", filter="data")
    # revisions before 0.2.0 look up a package of this name
    (described := folder / "agym-0.0.0.dist-info").mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: agym\nVersion: 0.0.0\n")
    return folder


def validate(side: Path) -> float:
    started = perf_counter()
    _call(side, ROOT, "validate", str(side / "agym/recipes/quickstart.yaml"))
    return perf_counter() - started


def train(side: Path, steps: int) -> dict[str, float]:
    """Median seconds of a step of imitation, and of a thousand tokens that are sampled and that are learned from."""
    with TemporaryDirectory(prefix="agym-against-run-") as folder:
        (Path(folder) / "recipe.yaml").write_text(RECIPE.format(steps=steps))
        _call(side, Path(folder), "run", "recipe.yaml")
        rows = [json.loads(line) for line in (Path(folder) / "runs/paired/metrics.jsonl").read_text().splitlines()]
    done = [row for row in rows if "timing_s/step" in row]
    imitated, explored = ([row for row in done if row["stage"] == stage][5:] for stage in ("imitate", "exploit"))
    return {
        "imitation, a step": median(row["timing_s/update"] for row in imitated),
        "rollout, 1,000 tokens": 1e3 * median(row["timing_s/rollout"] / row["rollout/tokens"] for row in explored),
        "update, 1,000 tokens": 1e3 * median(row["timing_s/update"] / row["train/tokens"] for row in explored),
    }


def _call(side: Path, cwd: Path, *words: str) -> None:
    environ = {**os.environ, "PYTHONPATH": str(side)}
    subprocess.run([sys.executable, "-m", "agym", *words], cwd=cwd, env=environ, capture_output=True, check=True)


def _print(what: str, pairs: Sequence[Sequence[float]]) -> None:
    if not pairs:
        return
    ours, theirs = zip(*pairs, strict=True)
    ratios = sorted(a / b for a, b in pairs)
    print(f"{what}: {median(ours):.4f} s, there {median(theirs):.4f} s (medians of {len(pairs)} pairs)")
    print(f"  ratio: min {ratios[0]:.3f}, median {median(ratios):.3f}, max {ratios[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
