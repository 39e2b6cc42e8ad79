"""Explanations of YAML syntax errors, at the character that causes each.

That is often not where the parser noticed. Rules are tried in order; where possible each looks at the text rather than
at the wording of the parser, so that both parsers lead to the same message.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..diagnostics import Diagnostic, Note
from ..frozen import frozen
from ..source import Source
from ..suggest import quote
from . import scan as around
from .yaml_traps import (
    DIRECTIVE,
    foreign_blank,
    in_quotes,
    refuse,
    without_space,
)

__all__ = ["Failure", "Seen", "explain_failure"]

MAX_KEY = 1024
"""YAML's own limit."""


@frozen(kw_only=False)
class Failure:
    """Where the parser gave up."""

    problem: str
    context: str
    at: int
    context_at: int | None

    @classmethod
    def of(cls, error: Any, start: int) -> Failure:
        """Convert an exception of either parser; `start` is the offset of the text that it was given."""
        problem_mark, context_mark = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
        return cls(
            problem=str(getattr(error, "problem", None) or error),
            context=str(getattr(error, "context", None) or ""),
            at=start + problem_mark.index if problem_mark else -1,
            context_at=start + context_mark.index if context_mark else None,
        )


@frozen(kw_only=False)
class Seen:
    """The last scalar before that place."""

    start: int
    end: int
    style: str


@frozen(kw_only=False)
class _Scene:
    """What a rule may look at."""

    source: Source
    failure: Failure
    last: Seen

    @property
    def text(self) -> str:
        return self.source.text

    @property
    def at(self) -> int:
        return self.failure.at

    @property
    def char(self) -> str:
        """The character that the parser stopped at; empty at the end."""
        return self.text[self.at : self.at + 1]

    def says(self, pattern: str) -> bool:
        return re.search(pattern, f"{self.failure.context}: {self.failure.problem}") is not None

    def error(self, code: str, message: str, start: int, end: int, help: str | None, *notes: Note) -> Diagnostic:  # noqa: A002
        span = self.source.span(start, end)
        return Diagnostic(code=code, message=message, span=span, help=help, notes=notes)


FailureRule = Callable[[_Scene], Diagnostic | None]


def explain_failure(source: Source, failure: Failure, last: Seen) -> Diagnostic:
    """Explain why the parser gave up."""
    if failure.at < 0:
        failure = Failure(failure.problem, failure.context, last.end, failure.context_at)
    scene = _Scene(source, failure, last)
    return next(found for said, rule in RULES if scene.says(said) and (found := rule(scene)) is not None)


# Rules, in the order in which they are tried.


def _tab(scene: _Scene) -> Diagnostic | None:
    return _tab_at(scene, scene.at) if scene.char == "\t" else None


def _tab_at(scene: _Scene, start: int) -> Diagnostic:
    message = "tabs cannot indent or separate in YAML"
    end = around.skip(scene.text, start, " \t")
    return scene.error("tab-indentation", message, start, end, "write spaces instead of the tab")


def _quote_never_closed(scene: _Scene) -> Diagnostic | None:
    start = scene.failure.context_at
    return None if start is None else _unclosed_quote(scene, start)


def _quote_closed_too_late(scene: _Scene) -> Diagnostic | None:
    """`a: "x` lacks its quote, so the next line's opening quote closes it and the parser fails on what follows."""
    last = scene.last
    spans_lines = last.style in ("'", '"') and "\n" in scene.text[last.start : last.end]
    return _unclosed_quote(scene, last.start) if spans_lines and last.end <= scene.at else None


def _unclosed_quote(scene: _Scene, start: int) -> Diagnostic:
    quote = scene.text[start]
    message = f"the quote {quote} is not closed on its line"
    return scene.error("unclosed-quote", message, start, around.line_end(scene.text, start), f"close it with {quote}")


def _text_after_quote(scene: _Scene) -> Diagnostic | None:
    last = scene.last
    after = scene.text[last.end : scene.at]
    if last.style not in ("'", '"') or "\n" in after or after.strip() or scene.char in ("", ":", "]", "}", "\r", "\n"):
        return None
    if scene.says("flow"):
        return None
    inner = scene.text[last.start : around.content_end(scene.text, scene.at)]
    advice = "write '' for a quote inside '...'" if last.style == "'" else 'write \\" for a quote inside "..."'
    return scene.error("stray-text", f"text after a closing quote in {quote(inner)}", scene.at, scene.at + 1, advice)


def _interpolation_in_flow(scene: _Scene) -> Diagnostic | None:
    at = scene.at
    if scene.char != "{" or scene.text[at - 1 : at] != "$":
        return None
    close = scene.text.find("}", at, around.line_end(scene.text, at))
    end = close + 1 if close >= 0 else at + 1
    start = scene.last.start if scene.last.end == at and not scene.last.style else at - 1
    tail = re.compile(r"[^\s,\]}]*").match(scene.text, end)
    whole = scene.text[start : tail.end() if tail else end]
    message = "'${...}' inside '{...}' or '[...]' must be quoted: YAML reads its brace as a map"
    return scene.error("unquoted-interpolation", message, at - 1, end, f'write "{whole}"')


def _bracket(scene: _Scene) -> Diagnostic | None:
    start = scene.failure.context_at
    if start is None:
        return None
    return _comma_missing(scene, start) if around.is_closed(scene.text, start) else _never_closed(scene, start)


def _never_closed(scene: _Scene, start: int) -> Diagnostic:
    bracket = scene.text[start]
    notes = (Note("read as part of it up to here", scene.source.span(scene.at, scene.at)),) if scene.char else ()
    advice = f"write '{around.PARTNER[bracket]}' where it should end"
    return scene.error("unclosed-bracket", f"the bracket {bracket} is never closed", start, start + 1, advice, *notes)


def _comma_missing(scene: _Scene, start: int) -> Diagnostic:
    what = "entries" if scene.text[start] == "{" else "items"
    last = scene.last
    if scene.char == ":" and " " in scene.text[last.start : last.end].strip():
        # `{x: 1 y: 2}`: the comma belongs before the last word, which is the next key
        at = max(scene.text.rfind(" ", last.start, last.end), scene.text.rfind("\n", last.start, last.end))
        return scene.error("missing-comma", f"missing ',' between {what}", at + 1, last.end, "write ', ' before it")
    advice = "write ', ' before it, or quote the whole value"
    return scene.error("missing-comma", f"missing ',' between {what}", scene.at, scene.at + 1, advice)


def _closes_nothing(scene: _Scene) -> Diagnostic | None:
    if scene.char not in ("]", "}") or scene.failure.context_at is None or scene.says("flow|alias|anchor"):
        return None
    message = f"unmatched '{scene.char}': no '{around.PARTNER[scene.char]}' is open here"
    return scene.error("unopened-bracket", message, scene.at, scene.at + 1, "remove it, or quote the value")


def _colon(scene: _Scene) -> Diagnostic | None:
    last, at = scene.last, scene.at
    if "\n" in scene.text[last.start : last.end]:
        return _key_swallowed(scene)
    if last.end == at and at - last.start > MAX_KEY:
        return scene.error(
            "too-large", f"this key has {at - last.start} characters; the limit is {MAX_KEY}", last.start, at, None
        )
    line = scene.text[around.value_start(scene.text, last.start) : around.content_end(scene.text, at)]
    return scene.error(
        "colon-in-value", f"unexpected ':' in {quote(line)}", at, at + 1, f"quote the value: {in_quotes(line)}"
    )


def _key_swallowed(scene: _Scene) -> Diagnostic | None:
    """Lines that YAML reads as one long value, until a colon shows that the last of them is a key."""
    last = scene.last
    key_start = around.skip(scene.text, around.line_start(scene.text, scene.at), " ")
    if scene.text[key_start] == "\t":
        return _tab_at(scene, key_start)
    key = scene.text[key_start : scene.at]
    if not scene.text[around.line_start(scene.text, last.start) : last.start].strip(" -"):
        return _missing_colon(scene, last.start)
    message, advice = (
        f"{quote(key)} is indented as if it were part of the value above",
        "indent it like the keys around it",
    )
    value = scene.source.span(last.start, around.line_end(scene.text, last.start))
    note = Note("the value it would be part of", value)
    return scene.error("bad-indentation", message, key_start, scene.at, advice, note)


def _key_without_colon(scene: _Scene) -> Diagnostic | None:
    start = scene.failure.context_at
    return None if start is None else _missing_colon(scene, start)


def _missing_colon(scene: _Scene, start: int) -> Diagnostic:
    line = scene.source.span(start, around.content_end(scene.text, start))
    message = f"expected ':' after {quote(line.text)}"
    error = scene.error("missing-colon", message, line.start, line.end, "write 'key: value'")
    return foreign_blank(line) or without_space(line) or error


def _reserved(scene: _Scene) -> Diagnostic | None:
    alias = scene.failure.context_at if scene.says("alias|anchor") else None
    start = scene.at if alias is None else alias
    value = scene.text[start : around.content_end(scene.text, start, flow=around.in_flow(scene.text, start))]
    message = f"an unquoted value cannot start with '{scene.text[start : start + 1]}'"
    return scene.error("reserved-character", message, start, start + len(value), f"quote it: {in_quotes(value)}")


def _dash(scene: _Scene) -> Diagnostic | None:
    message = f"'{scene.char} ' cannot follow a key on its line"
    help_line = "put each '- item' on its own line, write [a, b], or quote the value"
    return scene.error("bad-indentation", message, scene.at, scene.at + 1, help_line)


def _escape(scene: _Scene) -> Diagnostic | None:
    quote = scene.failure.context_at if scene.failure.context_at is not None else scene.last.end
    start = max(scene.text.rfind("\\", quote, scene.at + 1), quote)
    if scene.says(r"chr\(\) arg"):
        start = scene.text.find("\\U", quote)
    token = re.compile(r"\\(x\w{0,2}|u\w{0,4}|U\w{0,8}|.)", re.DOTALL).match(scene.text, start)
    end = token.end() if token else start + 1
    return refuse("bad-escape", scene.source.span(start, end))


def _document(scene: _Scene) -> Diagnostic | None:
    directive = DIRECTIVE.search(scene.text, 0, scene.at)
    if directive:
        return refuse("yaml-directive", scene.source.span(*directive.span()))
    if re.search(r"^\.\.\.\s*$", scene.text[: scene.at], re.MULTILINE):
        return refuse("several-documents", scene.source.span(scene.at, around.content_end(scene.text, scene.at)))
    return _misplaced(scene)


def _block(scene: _Scene) -> Diagnostic | None:
    if scene.char == ":":
        message = "expected a key before ':'"
        return scene.error("missing-key", message, scene.at, scene.at + 1, "write 'key: value'")
    return _misplaced(scene)


def _misplaced(scene: _Scene) -> Diagnostic:
    """Report something that cannot follow what is above it."""
    start = around.line_start(scene.text, scene.at)
    end = around.content_end(scene.text, scene.at)
    token = scene.text[scene.at : end]
    if scene.text[start : scene.at].strip(" -"):
        return scene.error("stray-text", f"{quote(token)} is out of place here", scene.at, end, "quote the whole value")
    message, help_line = _mixed(scene, token) or (
        f"{quote(token)} is indented by {scene.at - start}, which matches no level above",
        "indent it like the keys around it",
    )
    return scene.error("bad-indentation", message, scene.at, end, help_line)


def _mixed(scene: _Scene, token: str) -> tuple[str, str] | None:
    """A list item among keys, or a key among list items."""
    context_at = scene.failure.context_at
    if context_at is None or around.column(scene.text, context_at) != around.column(scene.text, scene.at):
        return None
    in_map = scene.says("block mapping")
    if in_map and token.startswith("-"):
        return "list item among keys", "indent it under its key, or write 'key: value'"
    if not in_map:
        return f"{quote(token)} is among list items", "start it with '- ', or indent it like an outer key"
    return None


def _nothing_there(scene: _Scene) -> Diagnostic | None:
    unclosed = None if scene.char else around.innermost_open(scene.text)
    if unclosed is not None:
        return _never_closed(scene, unclosed)
    found = f"got '{scene.char}'" if scene.char.strip() else "got nothing"
    return scene.error("missing-value", f"expected a value, {found}", scene.at, scene.at + 1, "write a value or null")


def _block_header(scene: _Scene) -> Diagnostic | None:
    start = scene.failure.context_at if scene.failure.context_at is not None else scene.at
    end = around.content_end(scene.text, start)
    message = f"expected only '-', '+' or a digit after '{scene.text[start]}'"
    return scene.error("yaml-syntax", message, start, end, "start the text on the next line, or quote it")


def _tag(scene: _Scene) -> Diagnostic | None:
    start = scene.text.find("!", scene.failure.context_at or scene.at)
    return refuse("yaml-tag", scene.source.span(start, around.word_end(scene.text, start))) if start >= 0 else None


def _anything(scene: _Scene) -> Diagnostic:
    words = re.sub(r"\s+", " ", scene.failure.problem)[:80]
    return scene.error("yaml-syntax", f"not valid YAML: {words}", scene.at, scene.at + 1, None)


RULES: tuple[tuple[str, FailureRule], ...] = (
    ("", _tab),
    (r"quoted scalar.*: found unexpected (end of stream|document)", _quote_never_closed),
    (r"escape|hexa?decimal|chr\(\) arg", _escape),
    ("", _interpolation_in_flow),
    ("", _quote_closed_too_late),
    ("", _text_after_quote),
    (r"while parsing a flow (mapping|sequence).*expected ',' or", _bracket),
    ("", _closes_nothing),
    ("mapping values are not allowed", _colon),
    ("could not find expected ':'", _key_without_colon),
    ("cannot start any token|scanning an? (alias|anchor)|scanning a directive", _reserved),
    ("sequence entries are not allowed|mapping keys are not allowed", _dash),
    ("<document start>", _document),
    ("did not find expected (key|'-')|expected <block end>", _block),
    ("node content", _nothing_there),
    ("scanning a block scalar", _block_header),
    (r"\btag\b", _tag),
    ("", _anything),
)
"""Each with what the parser must have said; where that is nothing, the rule looks at the text alone."""
