"""The seven standard benchmarks, each from the file that its authors publish.

The files are named as the splits here: `nq.jsonl`, `triviaqa.json`, `popqa.tsv`, `hotpotqa.json`, `2wikimultihop.json`
(optionally with its `id_aliases.json`), `musique.jsonl`, `bamboogle.csv`. Any of them may be a `.jsonl` of `question`
and `golden_answers` instead.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import BadOption
from .questions import Question, read_accepted, read_own_questions

__all__ = ["BENCHMARKS", "find_benchmarks", "read_benchmark"]

Rows: TypeAlias = Iterator[tuple[object, str, tuple[str, ...]]]
"""An id, a question and its accepted answers."""


def find_benchmarks(folder: Path) -> tuple[str, ...]:
    """Benchmarks that a folder has a file of."""
    if not folder.is_dir():
        raise BadOption(f"search option 'benchmarks': there is no folder '{folder}'")
    return tuple(name for name in BENCHMARKS if _file(folder, name) is not None)


def read_benchmark(folder: Path, name: str) -> tuple[Question, ...]:
    file = _file(folder, name)
    assert file is not None
    if file.suffix == ".jsonl" and name != "musique":
        return read_own_questions(file, name)
    try:
        questions = tuple(
            Question(id=f"{name}/{id_}", text=text, answers=answers, side="test")
            for id_, text, answers in BENCHMARKS[name][1](file)
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadOption(f"{file} is not as {name} is published: {error!r}") from error
    if not questions or len({question.id for question in questions}) != len(questions):
        raise BadOption(f"{file} is not as {name} is published: no question, or an id twice")
    return questions


def _file(folder: Path, name: str) -> Path | None:
    return next(
        (file for suffix in (BENCHMARKS[name][0], ".jsonl") if (file := folder / f"{name}{suffix}").is_file()), None
    )


def _lines(file: Path) -> Rows:
    """NQ-open, MuSiQue: a JSON object in each line."""
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            row: Mapping[str, Any] = json.loads(line)
            # MuSiQue's full set has questions that its paragraphs do not answer
            if row.get("answerable", True):
                yield row.get("id", number), row["question"], read_accepted(row)


def _triviaqa(file: Path) -> Rows:
    for row in json.loads(file.read_text(encoding="utf-8"))["Data"]:
        answer = row["Answer"]
        yield (
            row["QuestionId"],
            row["Question"],
            read_accepted({"answers": [answer["Value"], *answer.get("Aliases", [])]}),
        )


def _popqa(file: Path) -> Rows:
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            yield row["id"], row["question"], read_accepted({"answers": json.loads(row["possible_answers"])})


def _hotpotqa(file: Path) -> Rows:
    for row in json.loads(file.read_text(encoding="utf-8")):
        yield row["_id"], row["question"], read_accepted(row)


def _2wikimultihop(file: Path) -> Rows:
    aliases = _aliases(file.with_name("id_aliases.json"))
    for row in json.loads(file.read_text(encoding="utf-8")):
        accepted = [row["answer"], *aliases.get(str(row.get("answer_id")), ())]
        yield row["_id"], row["question"], read_accepted({"answers": accepted})


def _aliases(file: Path) -> Mapping[str, list[str]]:
    """Other names of an answer, and of those who live there."""
    if not file.is_file():
        return {}
    with file.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    return {row["Q_id"]: [*row["aliases"], *row["demonyms"]] for row in rows}


def _bamboogle(file: Path) -> Rows:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines), start=1):
            yield number, row["Question"], read_accepted({"answers": [row["Answer"]]})


BENCHMARKS: Mapping[str, tuple[str, Callable[[Path], Rows]]] = {
    "nq": (".jsonl", _lines),
    "triviaqa": (".json", _triviaqa),
    "popqa": (".tsv", _popqa),
    "hotpotqa": (".json", _hotpotqa),
    "2wikimultihop": (".json", _2wikimultihop),
    "musique": (".jsonl", _lines),
    "bamboogle": (".csv", _bamboogle),
}
"""How a published file's name ends, and what reads it."""
