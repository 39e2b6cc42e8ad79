"""The seven standard benchmarks, each from the file that its authors publish.

The files are named as the splits are here, not as they were published:

    nq.jsonl             NQ-open.dev.jsonl, of google-research-datasets/natural-questions
    triviaqa.json        unfiltered-web-dev.json and others of TriviaQA 1.0, as mandarjoshi90/triviaqa reads them
    popqa.tsv            popQA.tsv, of AlexTMallen/adaptive-retrieval
    hotpotqa.json        hotpot_dev_distractor_v1.json, described by hotpotqa/hotpot
    2wikimultihop.json   dev.json, optionally with id_aliases.json, as Alab-NII/2wikimultihop's evaluation reads them
    musique.jsonl        musique_ans_v1.0_dev.jsonl or the full one, as StonyBrookNLP/musique's evaluation reads them
    bamboogle.csv        Bamboogle Prerelease - Sheet1.csv, of ofirpress/self-ask

Any of them may be a `.jsonl` of `question` and `golden_answers` instead.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import BadOption
from .questions import Question, read_accepted, read_own_questions

__all__ = ["BENCHMARKS", "find_benchmarks", "read_benchmark"]

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]
"""Each by its place in the file, such as `line 3`, and what reads it once that is known."""
Read: TypeAlias = Callable[[Row], tuple[object, str, tuple[str, ...]] | None]
"""An id, if the row has one, a question and its accepted answers; None where the row is to be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The form in which a benchmark is published."""

    suffix: str
    rows: Callable[[Path], Rows]
    read: Callable[[Path], Read]
    """Makes the reader of a file's rows."""
    has: str
    """What a row has, in words."""


def find_benchmarks(folder: Path) -> tuple[str, ...]:
    """Benchmarks that a folder has a file for."""
    if not folder.is_dir():
        raise BadOption(f"search option 'benchmarks': there is no folder '{folder}'")
    return tuple(name for name in BENCHMARKS if _file(folder, name) is not None)


def read_benchmark(folder: Path, name: str) -> tuple[Question, ...]:
    file = _file(folder, name)
    assert file is not None
    if file.suffix == ".jsonl" and BENCHMARKS[name].suffix != ".jsonl":
        return read_own_questions(file, name)
    found: dict[str, Question] = {}
    for question in _questions(file, name):
        if question.id in found:
            raise BadOption(f"{file}: there are two questions '{question.id}'")
        found[question.id] = question
    if not found:
        raise BadOption(f"{file} has no question of {name}")
    return tuple(found.values())


def _file(folder: Path, name: str) -> Path | None:
    suffixes = (BENCHMARKS[name].suffix, ".jsonl")
    return next((file for suffix in suffixes if (file := folder / f"{name}{suffix}").is_file()), None)


def _questions(file: Path, name: str) -> Iterator[Question]:
    form = BENCHMARKS[name]
    read, place = form.read(file), "its beginning"
    try:
        for number, (at, load) in enumerate(form.rows(file), start=1):
            place = at
            found = read(_object(load()))
            if found is not None:
                id_, text, answers = found
                yield Question(
                    id=f"{name}/{number if id_ is None else id_}", text=_text(text), answers=answers, side="test"
                )
    except OSError as error:
        raise BadOption(f"{file} cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        where = place if file.suffix == ".jsonl" else f"line {error.lineno}"
        raise BadOption(f"{file}, {where}: not JSON, as {name} is published: {error.msg}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadOption(f"{file}, {place}: expected {form.has}, as {name} is published: {_explain(error)}") from error


def _object(row: object) -> Row:
    if not isinstance(row, dict):
        raise TypeError("it is no object")
    return row


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError("its question is no text")
    return value


def _explain(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    return "it has another form" if isinstance(error, AttributeError) else str(error)


# --- rows ---


def _lines(file: Path) -> Rows:
    """A JSON object in each line."""
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield f"line {number}", partial(json.loads, line)


def _list(file: Path) -> Rows:
    """A JSON list of objects."""
    return _entries(json.loads(file.read_text(encoding="utf-8")))


def _data(file: Path) -> Rows:
    """A JSON object with such a list as its `Data`."""
    return _entries(_object(json.loads(file.read_text(encoding="utf-8")))["Data"])


def _entries(listed: object) -> Rows:
    if not isinstance(listed, list):
        raise TypeError("it is no list")
    for number, row in enumerate(listed, start=1):
        yield f"entry {number}", partial(_object, row)


def _table(delimiter: str) -> Callable[[Path], Rows]:
    """A table with names of its columns in the first line."""

    def rows(file: Path) -> Rows:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, delimiter=delimiter, strict=True)
            for row in reader:
                yield f"line {reader.line_num}", partial(dict, row)

    return rows


# --- each benchmark ---


def _read_plain(row: Row) -> tuple[object, str, tuple[str, ...]]:
    return row.get("id"), row["question"], read_accepted(row)


def _read_musique(row: Row) -> tuple[object, str, tuple[str, ...]] | None:
    """The full set has questions that their paragraphs do not answer."""
    return (row["id"], row["question"], read_accepted(row)) if row.get("answerable", True) else None


def _read_triviaqa(row: Row) -> tuple[object, str, tuple[str, ...]]:
    answer = _object(row["Answer"])
    accepted = [answer["Value"], *answer.get("Aliases", []), *answer.get("HumanAnswers", [])]
    return row["QuestionId"], row["Question"], read_accepted({"answers": accepted})


def _read_popqa(row: Row) -> tuple[object, str, tuple[str, ...]]:
    try:
        listed = json.loads(row["possible_answers"] or "null")
    except json.JSONDecodeError:
        listed = None
    if not isinstance(listed, list):
        raise TypeError("its 'possible_answers' are no list")
    return row["id"], row["question"], read_accepted({"answers": listed})


def _read_hotpotqa(row: Row) -> tuple[object, str, tuple[str, ...]]:
    return row["_id"], row["question"], read_accepted({"answer": row["answer"]})


def _make_2wikimultihop(file: Path) -> Read:
    aliases = _read_aliases(file.with_name("id_aliases.json"))

    def read(row: Row) -> tuple[object, str, tuple[str, ...]]:
        accepted = [row["answer"], *aliases.get(str(row.get("answer_id")), ())]
        return row["_id"], row["question"], read_accepted({"answers": accepted})

    return read


def _read_aliases(file: Path) -> Mapping[str, list[str]]:
    """Other names of an answer, and of those who live there."""
    if not file.is_file():
        return {}
    found, place = dict[str, list[str]](), "its beginning"
    try:
        for at, load in _lines(file):
            place = at
            row = _object(load())
            found[row["Q_id"]] = [*row["aliases"], *row["demonyms"]]
    except OSError as error:
        raise BadOption(f"{file} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        expected = "expected an object with 'Q_id', 'aliases' and 'demonyms'"
        raise BadOption(f"{file}, {place}: {expected}: {_explain(error)}") from error
    return found


def _read_bamboogle(row: Row) -> tuple[object, str, tuple[str, ...]]:
    return None, row["Question"], read_accepted({"answer": row["Answer"]})


def _always(read: Read) -> Callable[[Path], Read]:
    return lambda file: read


BENCHMARKS: Mapping[str, Published] = {
    "nq": Published(
        suffix=".jsonl", rows=_lines, read=_always(_read_plain), has="an object with 'question' and 'answer'"
    ),
    "triviaqa": Published(
        suffix=".json",
        rows=_data,
        read=_always(_read_triviaqa),
        has="an object whose 'Data' lists 'QuestionId', 'Question' and an 'Answer' with 'Value' and 'Aliases'",
    ),
    "popqa": Published(
        suffix=".tsv",
        rows=_table("\t"),
        read=_always(_read_popqa),
        has="the columns 'id', 'question' and 'possible_answers', a JSON list",
    ),
    "hotpotqa": Published(
        suffix=".json",
        rows=_list,
        read=_always(_read_hotpotqa),
        has="a list of objects with '_id', 'question' and 'answer'",
    ),
    "2wikimultihop": Published(
        suffix=".json",
        rows=_list,
        read=_make_2wikimultihop,
        has="a list of objects with '_id', 'question' and 'answer'",
    ),
    "musique": Published(
        suffix=".jsonl",
        rows=_lines,
        read=_always(_read_musique),
        has="an object with 'id', 'question', 'answer' and 'answer_aliases'",
    ),
    "bamboogle": Published(
        suffix=".csv", rows=_table(","), read=_always(_read_bamboogle), has="the columns 'Question' and 'Answer'"
    ),
}
