"""A user's file of tasks: JSON lines, each with an instruction and what it takes to be done.

{"id": "sum-1", "instruction": "What is 2 + 3?", "answer": "5"}
{"id": "pay-1", "instruction": "Pay bob 30.", "check": "result('balance', account='bob') == '30'", "split": "test"}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadOption
from .actions import ANSWER
from .check import BadCheck, TaskCheck, compile_check, find_tools, read_number

__all__ = ["SPLITS", "ToolTask", "find_wrong_rows", "load_task_file"]

SPLITS = ("train", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTask:
    id: str
    instruction: str
    answers: tuple[str, ...]
    """Any of these is accepted; every answer, if there is none."""
    check: TaskCheck | None
    """What must hold at the end, besides."""
    asked: frozenset[str]
    """Tools that the check names."""
    split: str
    group: str | None
    """Results are broken down by it."""
    solution: tuple[str, ...] | None
    """Actions, with the answer at the end."""
    trivial: bool
    """Whether an empty answer is right, on purpose."""

    def accepts(self, answer: str) -> bool:
        return not self.answers or any(_same(answer, each) for each in self.answers)


def _same(one: str, other: str) -> bool:
    words, other_words = one.casefold().split(), other.casefold().split()
    return words == other_words or read_number(one) == read_number(other)


def load_task_file(path: str) -> Mapping[str, ToolTask]:
    """Load the tasks by id, in the file's order."""
    try:
        text = Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"mcp cannot read the file of tasks '{path}': {error}") from error
    tasks: dict[str, ToolTask] = {}
    for at, row in _rows(text):
        if isinstance(row, str):
            raise BadOption(f"{path}:{at}: {row}")
        tasks[row.id] = row
    return tasks


def find_wrong_rows(text: str) -> Iterator[tuple[int, str]]:
    """The number of each wrong line of a file of tasks, and what is wrong with it."""
    rows = list(_rows(text))
    yield from ((at, row) for at, row in rows if isinstance(row, str))
    if not rows:
        yield 1, "there is no task in it"


def _rows(text: str) -> Iterator[tuple[int, ToolTask | str]]:
    """The task of each line with its number, or what is wrong with it."""
    known = set[str]()
    for at, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            task = _task(json.loads(line))
        except ValueError as error:
            yield at, str(error)
        else:
            yield at, f"task '{task.id}' appears twice" if task.id in known else task
            known.add(task.id)


_KEYS = {"id", "instruction", "answer", "check", "split", "group", "solution", "trivial"}


def _task(data: Any) -> ToolTask:
    if not isinstance(data, dict) or data.keys() - _KEYS:
        raise ValueError(f"expected an object with some of the keys {', '.join(sorted(_KEYS))}")
    texts = {key: data.get(key) for key in ("id", "instruction")}
    if not all(isinstance(text, str) and text for text in texts.values()):
        raise ValueError("a task needs an 'id' and an 'instruction', both texts")
    if "answer" not in data and "check" not in data:
        raise ValueError("a task needs an 'answer' or a 'check'")
    if data.get("split", "train") not in SPLITS:
        raise ValueError(f"'split' must be one of {', '.join(SPLITS)}")
    if not isinstance(data.get("trivial", False), bool):
        raise ValueError("'trivial' must be true or false")
    answers = _texts(data.get("answer", []))
    check = _check(data["check"]) if "check" in data else None
    return ToolTask(
        id=data["id"],
        instruction=data["instruction"],
        answers=answers,
        check=check,
        asked=frozenset(find_tools(data["check"]) if check is not None else ()),
        split=data.get("split", "train"),
        group=str(data["group"]) if "group" in data else None,
        solution=_solution(data["solution"], answers) if "solution" in data else None,
        trivial=data.get("trivial", False),
    )


def _texts(value: Any) -> tuple[str, ...]:
    given = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str | int | float) and not isinstance(each, bool) for each in given):
        raise ValueError("'answer' must be a text or a number, or a list of them")
    return tuple(str(each) for each in given)


def _check(value: Any) -> TaskCheck:
    if not isinstance(value, str):
        raise BadCheck("'check' must be a text")
    return compile_check(value)


def _solution(value: Any, answers: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, dict | list) for each in value):
        raise ValueError("'solution' must be a list of calls")
    actions = [*value]
    if not (actions and isinstance(actions[-1], dict) and actions[-1].get("name") == ANSWER):
        actions.append({"name": ANSWER, "arguments": {"text": answers[0] if answers else "done"}})
    return tuple(json.dumps(action, ensure_ascii=False) for action in actions)
