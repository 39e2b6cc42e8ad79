"""YAML traps: text that YAML reads differently than its author meant, and constructs that recipes do not allow."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..diagnostics import Diagnostic
from ..source import Source, Span
from ..suggest import quote

__all__ = [
    "DIRECTIVE",
    "MAY_BE_TRAP",
    "explain_plain",
    "foreign_blank",
    "foreign_character",
    "in_quotes",
    "refuse",
    "torn_by_comma",
    "without_colon",
    "without_space",
]

FOREIGN = re.compile("[^\t\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|\r(?!\n)")
DIRECTIVE = re.compile(r"^%[^\r\n]*", re.MULTILINE)
LOOKALIKES = {**dict.fromkeys("“”„‟«»", '"'), **dict.fromkeys("‘’‚‛", "'"), "\xa0": " ", "\u200b": "", "\u3000": " "}
BLANK = re.compile("[\xa0\u200b\u3000]")
MAY_BE_TRAP = re.compile(rf"\A[-{''.join(LOOKALIKES)}]|[:\n]")
"""Does not match what `explain_plain` need not look at."""
GLUED_KEY = re.compile(r"([A-Za-z_][\w.-]*)(:)(?!//)([^\s:].*)", re.DOTALL)
GLUED_ITEM = re.compile(r"()(-)([A-Za-z\"'\[{].*)", re.DOTALL)


def foreign_character(source: Source, start: int) -> Diagnostic | None:
    """Report the first character or line that recipes do not allow, even if YAML does."""
    match = FOREIGN.search(source.text, start)
    if match:
        code = f"U+{ord(match.group()):04X}"
        return Diagnostic(
            code="control-character",
            message=f"the character {code} is not allowed in a recipe",
            span=source.span(*match.span()),
            help=f'remove it, or write "\\u{ord(match.group()):04x}" in double quotes',
        )
    directive = DIRECTIVE.search(source.text, start)
    if directive is None or not _only_comments(source.text[start : directive.start()]):
        return None
    return refuse("yaml-directive", source.span(*directive.span()))


def _only_comments(text: str) -> bool:
    return all(not line.strip() or line.lstrip().startswith("#") for line in text.split("\n"))


REFUSED: Mapping[str, tuple[str, str]] = {
    "bad-escape": (
        "{} is not an escape in double-quoted text",
        "write \\\\ for a backslash, or use single quotes, which have no escapes",
    ),
    "several-documents": (
        "a second document starts here; a file holds one recipe",
        "move it to a file of its own, or remove the '---'",
    ),
    "yaml-directive": ("the directive {} is not allowed in a recipe", "remove the line; recipes are YAML 1.2"),
    "yaml-tag": ("the tag {} is not allowed in a recipe", "write the value alone; quotes make it text"),
}
"""By code: message and help; `{}` is what was written."""


def refuse(code: str, span: Span) -> Diagnostic:
    """Report a construct of YAML that recipes do not allow."""
    message, advice = REFUSED[code]
    return Diagnostic(code=code, message=message.format(quote(span.text)), span=span, help=advice)


def explain_plain(span: Span, own_line: bool) -> Diagnostic | None:
    """Report a plain value that YAML reads otherwise than meant; `own_line`: it is not on the line of its key."""
    text = span.text
    if text[0] in LOOKALIKES:
        return _lookalike(span.source.span(span.start, span.start + 1))
    if own_line and (found := without_space(span)):
        return found
    return _swallowed_item(span) if "\n" in text else None


def foreign_blank(span: Span) -> Diagnostic | None:
    """Report the first character that looks like a space but is not one in YAML."""
    found = BLANK.search(span.text)
    return _lookalike(span.source.span(span.start + found.start(), span.start + found.end())) if found else None


def _lookalike(span: Span) -> Diagnostic:
    char = span.text
    plain = LOOKALIKES[char]
    quotes = plain in ("'", '"')
    return Diagnostic(
        code="smart-quotes" if quotes else "control-character",
        message=f"'{char}' is not a quote in YAML" if quotes else f"character U+{ord(char):04X} is not a space in YAML",
        span=span,
        help=f"write {plain} instead" if quotes else "write a normal space",
    )


def without_space(span: Span) -> Diagnostic | None:
    """Report `turns:10` and `-item`, which are text to YAML because the space is missing."""
    first_line = span.text.split("\n", 1)[0].rstrip()
    match = GLUED_KEY.fullmatch(first_line) or GLUED_ITEM.fullmatch(first_line)
    if match is None:
        return None
    before, sign, after = match.groups()
    return Diagnostic(
        code="missing-space",
        message=f"expected a space after '{sign}' in {quote(first_line)}",
        span=span.source.span(span.start, span.start + len(first_line)),
        help=f"write '{before}{sign} {after[:40]}'",
    )


def _swallowed_item(span: Span) -> Diagnostic | None:
    """Report a `- ` indented further than the item above it: YAML reads both as one text."""
    match = re.search(r"\n *(- [^\r\n]*)", span.text)
    if match is None:
        return None
    return Diagnostic(
        code="bad-indentation",
        message=f"{quote(match.group(1))} is indented as if it were part of the value above",
        span=span.source.span(span.start + match.start(1), span.start + match.end(1)),
        help="indent it like the items around it, or put it under a key",
    )


def torn_by_comma(whole: Span, key: str | None) -> Diagnostic:
    """Report a plain value in `{...}` or `[...]` that a comma ended."""
    fixed = in_quotes(whole.text)
    return Diagnostic(
        code="comma-in-flow",
        message=f"a comma ends an unquoted value inside '{{...}}' and '[...]': {quote(whole.text)} is split",
        span=whole,
        help=f"write {key}: {fixed}" if key else f"write {fixed}",
    )


def without_colon(span: Span) -> Diagnostic:
    """Report an entry of `{...}` without a value."""
    return without_space(span) or Diagnostic(
        code="missing-value",
        message=f"expected 'key: value' inside '{{...}}', got {quote(span.text)}",
        span=span,
        help="write '${vars.NAME}' for a variable" if span.text.startswith("{") else f"write '{span.text[:40]}: ...'",
    )


def in_quotes(text: str) -> str:
    """Quote a value as a person would."""
    flat = " ".join(text.split())[:120]
    return f"'{flat}'" if '"' in flat or "\\" in flat else f'"{flat}"'
