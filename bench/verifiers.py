"""Claim: environments of the verifiers ecosystem that others published play, and pass `agym envs check`.

Each is installed in a folder of its own, unless it is there already; then the checks run on it, and what failed is
printed. Those of the 0.1 line are on the package index. Tasksets of the current line are published as source, so they
need a checkout:

    git clone https://github.com/PrimeIntellect-ai/verifiers && git -C verifiers checkout a60a606ec
    python bench/verifiers.py --source verifiers [--only NAME]

Needs the index, some minutes, and 3 GB below the user's cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agym.envs.verifiers.folders import list_installed


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    folder: str
    packages: tuple[str, ...]
    environment: str
    args: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    in_checkout: bool = False
    """Its packages are folders of the checkout."""


PATIENT = {"timeout_s": 900}
"""The checks play 33 episodes at a time, and here each starts servers of its own, which take seconds of a core."""
STARDATA = ("staros-stardata", "verifiers<0.2")
PUBLISHED: Mapping[str, Published] = {
    "poems": Published(
        folder="stardata",
        packages=STARDATA,
        environment="stardata.envs.constraint_gym",
        args={"forms": ["haiku", "limerick", "acrostic"]},
    ),
    "lipograms": Published(
        folder="stardata", packages=STARDATA, environment="stardata.envs.constraint_gym:load_lipogram_env"
    ),
    "reasoning": Published(
        folder="verifiers",
        packages=("verifiers[rg]<0.2",),
        environment="verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv",
        args={"gym": "gcd", "num_train_examples": 100, "num_eval_examples": 20},
    ),
    "glossary": Published(
        folder="glossary",
        packages=("environments/glossary",),
        environment="glossary",
        options=PATIENT,
        in_checkout=True,
    ),
    "scratchpad": Published(
        folder="scratchpad",
        packages=("environments/scratchpad",),
        environment="scratchpad",
        options={"held_out": 5, **PATIENT},
        in_checkout=True,
    ),
    "interception": Published(
        folder="interception",
        packages=("environments/interception",),
        environment="interception",
        options=PATIENT,
        in_checkout=True,
    ),
}


def agym(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", "agym", *words], check=False).returncode


def check(name: str, published: Published, source: Path | None) -> bool | None:
    """Whether the checks pass; None where its packages are in a checkout, and none was given."""
    if published.folder not in {each.name for each in list_installed(os.environ)}:
        if published.in_checkout and source is None:
            return None
        root = source if published.in_checkout and source is not None else Path()
        packages = [str(root / each) if published.in_checkout else each for each in published.packages]
        agym("envs", "install", "verifiers", published.folder, *packages)
    print(f"--- {name}: {published.environment}", flush=True)
    options = {"environment": published.environment, "args": dict(published.args), **published.options}
    return agym("envs", "check", "verifiers", "--options", json.dumps(options)) == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(PUBLISHED))
    parser.add_argument("--source", type=lambda word: Path(word).resolve(), help="checkout of verifiers' repository")
    given = parser.parse_args()
    chosen = {name: each for name, each in PUBLISHED.items() if given.only in (None, name)}
    passed = {name: check(name, each, given.source) for name, each in chosen.items()}
    print(json.dumps(passed))
    return 0 if all(each is not False for each in passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
