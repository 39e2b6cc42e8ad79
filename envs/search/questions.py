"""Questions: those that are shipped, and a user's own.

The shipped ones are made from WordNet's part-of relations; a line of `data/questions.txt` has the side, the number of
facts in a row, the synset where that row begins, and the name by which it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from ..errors import BadOption
from .scoring import normalize
from .wordnet import Synset, load_shipped

__all__ = ["ASKED", "Question", "load_wordnet_questions", "make_question", "read_accepted", "read_own_questions"]

ASKED: Mapping[int, str] = {
    1: 'What is "{name}" directly part of?',
    2: '"{name}" is directly part of one thing. What is that thing itself directly part of?',
}
"""By the number of facts in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    id: str
    text: str
    answers: tuple[str, ...]
    """Any of them is right."""
    side: str = "train"
    hops: int | None = None
    """Facts in a row that lead to the answer, where that is known."""
    topic: str | None = None
    steps: tuple[str, ...] = ()
    """What to search for, one after the other, where that is known."""


# --- of WordNet ---


@cache  # never changes
def load_wordnet_questions() -> tuple[Question, ...]:
    synsets = load_shipped()
    lines = (resources.files(__package__) / "data" / "questions.txt").read_text("utf-8").splitlines()
    return tuple(_parse_line(line, synsets) for line in lines)


def _parse_line(line: str, synsets: Mapping[str, Synset]) -> Question:
    side, hops, first, name = line.split("\t")
    return make_question(name, _row(synsets[first], int(hops), synsets), side)


def _row(synset: Synset, hops: int, synsets: Mapping[str, Synset]) -> tuple[Synset, ...]:
    """A synset, what it is part of, what that is part of, and so on."""
    return (synset, *_row(synsets[synset.wholes[0]], hops - 1, synsets)) if hops else (synset,)


def make_question(name: str, row: Sequence[Synset], side: str) -> Question:
    """Make the question that a row of synsets answers, with its first called by that name."""
    first, *between, last = row
    hops = len(row) - 1
    return Question(
        id=f"hop{hops}/{first.topic}/{name.lower().replace(' ', '-')}",
        text=ASKED[hops].format(name=name),
        answers=tuple(each for each in last.names if normalize(each)),
        side=side,
        hops=hops,
        topic=first.topic,
        steps=(name, *(each.names[0] for each in between)),
    )


# --- a user's own ---


def read_own_questions(file: Path, prefix: str = "own") -> tuple[Question, ...]:
    """Read a question from each line: `question`, accepted answers, optionally an `id` and a `split`, train or test."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")  # JSON's strings may contain other line separators
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"search option 'questions': cannot read '{file}': {error}") from error
    questions = tuple(_own(lines, file, prefix))
    if len({question.id for question in questions}) != len(questions):
        raise BadOption(f"{file}: two questions have the same id")
    return questions


def _own(lines: Sequence[str], file: Path, prefix: str) -> Iterator[Question]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            yield Question(
                id=f"{prefix}/{row.get('id', number)}",
                text=str(row["question"]),
                answers=read_accepted(row),
                side=_side(row.get("split", "train")),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadOption(f"{file}:{number}: expected an object with 'question' and 'answers': {error!r}") from error


def read_accepted(row: Mapping[str, object]) -> tuple[str, ...]:
    """Read `answers`, `golden_answers`, or `answer` with optional `answer_aliases`."""
    for key in ("answers", "golden_answers", "answer"):
        if key in row:
            found = row[key] if isinstance(row[key], list) else [row[key]]
            aliases = row.get("answer_aliases", [])
            break
    else:
        raise KeyError("answers")
    listed = [text for each in (*_list(found), *_list(aliases)) if (text := _text(each)).strip()]
    if not listed:
        raise ValueError("no answer is accepted")
    return tuple(dict.fromkeys(listed))


def _text(answer: object) -> str:
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise TypeError(f"an answer must be a text or a number, not {answer!r}")
    return str(answer)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _side(value: object) -> str:
    if value not in ("train", "test"):
        raise ValueError("'split' must be train or test")
    return str(value)
