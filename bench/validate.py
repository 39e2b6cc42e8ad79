"""Claim: checking a recipe is quick enough to do at every save.

Whole cold processes: `agym --help` (limit 0.15 s), `agym validate` of one recipe (0.35 s), and of a thousand generated
ones in one call (10 s). Prints min, median and max seconds of each.

    python bench/validate.py [--times 15]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
QUICKSTART = ROOT / "recipes" / "quickstart.yaml"
NUM_RECIPES = 1000
# compiled modules are kept, as they are where a package was installed
ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

RECIPE = """\
agym: 1
name: run-{number}
extends: base/grpo-7b
seed: {number}
vars: {{last: {last}}}
environments:
  textcraft: {{use: textcraft, tasks: {{train: train, eval: test}}}}
algorithm: {{lr: {lr}, group_size: 8, kl: {{coef: 1e-3}}}}
schedule:
  - {{stage: exploit, turns: 10, until: step >= {until}}}
  - {{stage: explore, turns: 20, until: "step >= 100 or mean(success, 10) >= 0.8"}}
  - {{stage: refine, turns: "${{vars.last}}", until: step >= 130}}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15, help="processes per line; a third of it for the thousand")
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder:
        write_recipes(Path(folder))
        report("agym --help", 0.15, seconds(["--help"], times))
        report("agym validate recipes/quickstart.yaml", 0.35, seconds(["validate", str(QUICKSTART)], times))
        report(f"agym validate, {NUM_RECIPES} recipes", 10.0, seconds(["validate", folder], max(times // 3, 1)))
    return 0


def write_recipes(folder: Path) -> None:
    """Recipes that all extend one base and differ in their values, as a study does."""
    for number in range(NUM_RECIPES):
        text = RECIPE.format(number=number, last=20 + number % 20, lr=f"{1 + number % 9}e-6", until=50 + number)
        (folder / f"run-{number:04}.yaml").write_text(text, encoding="utf-8")


def seconds(arguments: Sequence[str], times: int) -> list[float]:
    """Of whole processes, from the first instruction of Python to the end."""
    return [once(arguments) for _ in range(times)]


def once(arguments: Sequence[str]) -> float:
    start = perf_counter()
    subprocess.run([sys.executable, "-m", "agym", *arguments], check=True, stdout=subprocess.DEVNULL, env=ENVIRON)
    return perf_counter() - start


def report(what: str, limit: float, taken: list[float]) -> None:
    figures = f"min {min(taken):.3f}  median {median(taken):.3f}  max {max(taken):.3f}"
    print(f"{what:<40} {figures}  limit {limit:g} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
