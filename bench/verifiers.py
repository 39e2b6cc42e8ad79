"""Claim: environments of the verifiers ecosystem that others published play, and pass `agym envs check`.

Each is installed in a folder of its own, from the package index, unless it is there already; then the checks run on it,
and what failed is printed. Needs the index, some minutes, and 2 GB below the user's cache.

    python bench/verifiers.py [--only NAME]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from agym.envs.verifiers.folders import list_installed


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    folder: str
    packages: tuple[str, ...]
    environment: str
    args: Mapping[str, object] = field(default_factory=dict)


STARDATA = ("staros-stardata",)
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
}


def agym(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", "agym", *words], check=False).returncode


def check(name: str, published: Published) -> bool:
    if published.folder not in {each.name for each in list_installed(os.environ)}:
        agym("envs", "install", "verifiers", published.folder, *published.packages)
    print(f"--- {name}: {published.environment}", flush=True)
    options = {"environment": published.environment, "args": dict(published.args)}
    return agym("envs", "check", "verifiers", "--options", json.dumps(options)) == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(PUBLISHED))
    only = parser.parse_args().only
    passed = {name: check(name, each) for name, each in PUBLISHED.items() if only in (None, name)}
    print(json.dumps(passed))
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
