"""Thoughts in a reply: the marks that model families put around them, and what is left without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .messages import END_OF_THOUGHTS, START_OF_THOUGHTS

__all__ = ["MARKS", "TAGS", "ThoughtMarks", "end_of", "strip_thoughts", "without_thoughts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtMarks:
    """Texts around the thoughts of one family of models."""

    opening: str
    closing: str
    """The answer follows it."""


TAGS = ThoughtMarks(opening=START_OF_THOUGHTS, closing=END_OF_THOUGHTS)
MARKS = (
    TAGS,
    ThoughtMarks(opening="<|channel|>analysis<|message|>", closing="<|channel|>final<|message|>"),
    ThoughtMarks(opening="<|channel>thought", closing="<channel|>"),
)
"""Of Qwen, DeepSeek, GLM and most others; of gpt-oss; of Gemma 4. The latter two are control tokens of those families,
so no other family's replies hold them."""


def end_of(reply: str) -> str:
    """Return the mark that would end the thoughts that the reply begins with."""
    return next((marks.closing for marks in MARKS if reply.lstrip().startswith(marks.opening)), END_OF_THOUGHTS)


def strip_thoughts(reply: str, *, opened: bool = False) -> str | None:
    """Return the reply after its thoughts, all of it where it has none, and None where they do not end; `opened` where
    the prompt had begun them."""
    answer = _after(reply, _used(reply))
    if answer is None:
        return None if opened or _begins(reply) else reply
    # thoughts may follow thoughts
    while (marks := _begins(answer)) is not None:
        rest = _after(answer, marks)
        if rest is None:
            return None
        answer = rest
    return answer


def without_thoughts(reply: str) -> str:
    """Return the reply after its thoughts, or all of it where they do not end."""
    answer = strip_thoughts(reply)
    return (reply if answer is None else answer).strip()


def _used(reply: str) -> ThoughtMarks:
    return next(_found(reply), TAGS)


def _found(reply: str) -> Iterator[ThoughtMarks]:
    return (marks for marks in MARKS if marks.opening in reply or marks.closing in reply)


def _begins(answer: str) -> ThoughtMarks | None:
    return next((marks for marks in MARKS if answer.lstrip().startswith(marks.opening)), None)


def _after(reply: str, marks: ThoughtMarks) -> str | None:
    _, found, answer = reply.partition(marks.closing)
    return answer if found else None
