"""A small server to try things with, and its tasks: who lives where, and how old they are.

python -m agym.envs.mcp.example            serves over standard input and output
python -m agym.envs.mcp.example tasks      rewrites data/example.jsonl
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

__all__ = ["SERVER", "make_tasks"]

TOWNS = ("Ashford", "Brook", "Camley", "Dunmore")
NAMES = (
    *("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jana", "Karl", "Lena"),
    *("Max", "Nora", "Otto", "Pia", "Quinn", "Rosa", "Sven", "Tilda"),
)
AGES = {name: 20 + 7 * number % 41 for number, name in enumerate(NAMES)}
HOMES = {name: TOWNS[number * number % 7 % len(TOWNS)] for number, name in enumerate(NAMES)}

SERVER = MCPServer("people", log_level="CRITICAL")


def _known(name: str) -> str:
    if name not in AGES:
        raise ToolError(f"nobody is called {name[:20]}")
    return name


@SERVER.tool()
def age(name: str) -> str:
    """How old somebody is."""
    return str(AGES[_known(name)])


@SERVER.tool()
def home(name: str) -> str:
    """The town where somebody lives."""
    return HOMES[_known(name)]


def make_tasks() -> Iterator[dict[str, object]]:
    """One question about each person, and for some which of two is older; every fifth is for testing."""
    made = [*_alone("age", "How old is {}?", AGES), *_alone("home", "Where does {} live?", HOMES), *_pairs()]
    yield from ({**task, "split": "test" if number % 5 == 4 else "train"} for number, task in enumerate(made))


def _alone(tool: str, question: str, answers: dict[str, int] | dict[str, str]) -> Iterator[dict[str, object]]:
    for name, answer in answers.items():
        calls = [{"name": tool, "arguments": {"name": name}}]
        instruction = question.format(name)
        yield {"id": f"{tool}-{name}", "instruction": instruction, "answer": answer, "group": tool, "solution": calls}


def _pairs() -> Iterator[dict[str, object]]:
    for one, other in list(combinations(NAMES, 2))[::3]:
        calls = [[{"name": "age", "arguments": {"name": name}} for name in (one, other)]]
        yield {
            "id": f"older-{one}-{other}",
            "instruction": f"Who is older, {one} or {other}?",
            "answer": max(one, other, key=AGES.__getitem__),
            "group": "older",
            "solution": calls,
        }


if __name__ == "__main__":
    if sys.argv[1:] == ["tasks"]:
        text = "".join(f"{json.dumps(task)}\n" for task in make_tasks())
        (Path(__file__).parent / "data" / "example.jsonl").write_text(text, "utf-8")
    else:
        SERVER.run()
