"""Question: does a pretrained model understand what it is asked? Shares of legal replies and of success, untrained.

SmolLM2 plays held-out tasks of each environment with and without solved examples in its prompt, in the formats `plain`
and `react`, sampled at temperature .7 and greedily. A reply is legal if it holds an action that the environment takes.
To compare two revisions, run it in both.

    agym models get smollm2
    python bench/prompts.py [NAME ...] [--limit 24] [--examples 0 2] [--formats plain react] [--folder build/prompts]

What the folder already holds is read, not played again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECIPE: Mapping[str, Any] = {
    "agym": 1,
    "model": {"path": "smollm2"},
    "rollout": {"slots": 16},
    "checkpoint": {"episodes": "eval"},
    "hardware": {"threads": 2},
}
ENVIRONMENTS: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "babyai": ({"use": "babyai", "options": {"levels": ["GoToObjS6", "GoToLocalS5N2", "GoToLocalS6N2"]}}, 4),
    "textcraft": ({"use": "textcraft", "options": {"world": "small", "max_distractors": 1, "extras": 0}}, 6),
    "textworld": ({"use": "textworld"}, 6),
    "taxi": ({"use": "gymnasium", "options": {"id": "Taxi-v4"}}, 6),
    "gcd": ({"use": "reasoning_gym", "options": {"dataset": "gcd"}}, 1),
    "search": ({"use": "search", "options": {"hops": [1], "passages": 1}}, 3),
    "mcp": ({"use": "mcp", "options": {"keep": True}}, 4),
    "miniwob": ({"use": "miniwob", "options": {"pages": ["click-test-2", "click-button", "click-link"]}}, 3),
    "sciworld": (
        {"use": "sciworld", "options": {"tasks": ["lifespan-longest-lived"], "heap_mb": 1024, "processes": 1}},
        6,
    ),
    "sciworld-find": (
        {"use": "sciworld", "options": {"tasks": ["find-non-living-thing"], "heap_mb": 1024, "processes": 1}},
        6,
    ),
    # whole pages of two examples leave no room for a reply
    "websites": ({"use": "websites", "options": {"observation_tokens": 160}}, 6),
    "desk": ({"use": "desk", "options": {"levels": ["easy"]}}, 6),
    "shell": ({"use": "shell"}, 5),
    "nim": ({"use": "textarena", "options": {"game": "Nim-v0", "show": "board"}}, 6),
}
"""Each with its horizon."""
REPLY_TOKENS = {"desk": 72, "shell": 64}
"""Of plain replies that are longer than one short command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way of asking."""

    environment: str
    format: str
    examples: int
    limit: int

    @property
    def name(self) -> str:
        return f"{self.environment}-{self.format}-{self.examples}"

    def recipe(self) -> dict[str, Any]:
        environment, turns = ENVIRONMENTS[self.environment]
        agent = {
            "format": self.format,
            "tokens_per_turn": REPLY_TOKENS.get(self.environment, 24 if self.format == "plain" else 64),
        }
        agent |= {"context_tokens": 4096, "demonstrations": self.examples}
        return {
            **RECIPE,
            "name": self.name,
            "environments": {self.environment: environment},
            "agent": agent,
            "schedule": [{"stage": "ask", "turns": turns, "algorithm": {"use": "eval"}}],
            "eval": {"limit": self.limit, "temperature": 0.7, "greedy": True},
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ENVIRONMENTS))
    parser.add_argument("--limit", type=int, default=24)
    parser.add_argument("--examples", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--formats", nargs="+", default=["plain", "react"])
    parser.add_argument("--folder", type=Path, default=Path("build/prompts"))
    arguments = parser.parse_args()
    print("| environment | format | examples | legal, T = .7 | legal, greedy | success, T = .7 | success, greedy |")
    print("|---|---|---|---|---|---|---|")
    for name in arguments.names or ENVIRONMENTS:
        for format_ in arguments.formats:
            for examples in arguments.examples:
                case = Case(environment=name, format=format_, examples=examples, limit=arguments.limit)
                print(row(case, read(case, arguments.folder)), flush=True)
    return 0


def read(case: Case, folder: Path) -> list[dict[str, Any]]:
    """The episodes of a case, played if they are not there."""
    run = folder / "runs" / case.name
    if not list(run.glob("episodes/*.jsonl")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{case.name}.yaml").write_text(json.dumps(case.recipe()))
        with (folder / f"{case.name}.txt").open("w") as console:
            command = [sys.executable, "-m", "agym", "run", f"{case.name}.yaml", "--fresh"]
            if subprocess.run(command, cwd=folder, stdout=console, stderr=console, check=False).returncode:
                print(f"{case.name}: see {console.name}", file=sys.stderr)
    files = sorted(run.glob("episodes/*eval*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def row(case: Case, episodes: Sequence[Mapping[str, Any]]) -> str:
    sampled = [each for each in episodes if each["mode"] == "sampled"]
    greedy = [each for each in episodes if each["mode"] == "greedy"]
    shares = [share(legal(sampled)), share(legal(greedy)), share(won(sampled)), share(won(greedy))]
    return f"| {case.environment} | {case.format} | {case.examples} | {' | '.join(shares)} |"


def legal(episodes: Iterable[Mapping[str, Any]]) -> list[bool]:
    return [turn["action"] is not None for each in episodes for turn in each["turns"]]


def won(episodes: Iterable[Mapping[str, Any]]) -> list[bool]:
    return [each["success"] for each in episodes]


def share(found: Sequence[bool]) -> str:
    return f"{sum(found) / len(found):.2f}" if found else "-"


if __name__ == "__main__":
    sys.exit(main())
