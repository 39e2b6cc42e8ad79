"""Texts for the agent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum

from .actions import MalformedToolUse, SearchTool
from .corpus.passages import Passage

__all__ = [
    "TOOL_PROMPT",
    "SearchTexts",
    "cut_page",
    "explain_malformed",
    "list_passages",
    "list_vocabulary",
    "write_prompt",
]

_TOOLS: Mapping[SearchTool, str] = {
    SearchTool.SEARCH: "search WORDS finds passages of a collection of texts",
    SearchTool.OPEN: "open N shows where passage N of the last search stands, from there on; open next goes on",
    SearchTool.PYTHON: (
        "python PROGRAM runs a program of one or more lines, without files or network, and shows its output"
    ),
    SearchTool.ANSWER: "answer TEXT ends it: give the answer alone, as short as it can be",
}
_PASSAGE = 1_200
"""Characters of a passage that a search shows."""
_PAGE = 2_400


class SearchTexts(StrEnum):
    QUESTION = "Question: {text}"
    NOTHING = "Nothing was found."
    NO_SUCH = "The last search found no passage with that number."
    NO_MORE = "Nothing more follows."
    RIGHT = "That is right."
    PARTLY = "That is partly right."
    WRONG = "That is wrong."


_MALFORMED: Mapping[MalformedToolUse, str] = {
    MalformedToolUse.UNKNOWN: "That is no command. Begin with {tools}.",
    MalformedToolUse.EMPTY: "Something is missing after the first word.",
    MalformedToolUse.LONG: "That is too long.",
    MalformedToolUse.NUMBER: "Give the number of a passage, or next.",
}


TOOL_PROMPT = "Answer the question. Each turn, call one tool."


def write_prompt(tools: Collection[SearchTool]) -> str:
    lines = [_TOOLS[tool] for tool in SearchTool if tool in tools]
    return "\n".join(["Answer the question. Each turn, give one command:", *lines])


def explain_malformed(why: MalformedToolUse, tools: Collection[SearchTool]) -> str:
    *names, last = [tool for tool in SearchTool if tool in tools]
    return _MALFORMED[why].format(tools=f"{', '.join(names)} or {last}")


def list_passages(passages: Sequence[Passage]) -> str:
    listed = [f"{at}. {_format_passage(passage)}" for at, passage in enumerate(passages, start=1)]
    return "\n".join(listed) or SearchTexts.NOTHING


def _format_passage(passage: Passage) -> str:
    text = passage.text if len(passage.text) <= _PASSAGE else f"{passage.text[:_PASSAGE]} ..."
    return f"{passage.title}: {text}" if passage.title else text


def cut_page(text: str) -> tuple[str, str]:
    """Split a text into the page to show and the rest."""
    if len(text) <= _PAGE:
        return text, ""
    end = text.rfind(" ", 0, _PAGE)
    end = end if end > 0 else _PAGE
    return f"{text[:end]} ...", text[end:].lstrip()


def list_vocabulary(passages: int) -> Iterator[str]:
    """Texts with every word of these phrases."""
    yield from SearchTool
    yield from (text.format(text="") for text in SearchTexts)
    yield from (explain_malformed(why, tuple(SearchTool)) for why in MalformedToolUse)
    yield from (f"{number}. :" for number in range(1, passages + 1))
