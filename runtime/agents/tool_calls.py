"""The format `tools`: calls as the model's own template writes them, else the bare action between tags.

Where the template shows no tools, or writes calls in a way that is not parsed here, the rules ask for
`<tool_call>go north</tool_call>`, which even a vocabulary of words can spell.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .calls import JSON_HINT, CallDialect, MalformedCall, ToolCall, load_json
from .messages import ParsedReply, accept, refuse
from .toolbox import Toolbox

__all__ = ["TAGGED", "CallForm", "parse_tool_calls", "templated", "unreadable_replies"]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_BETWEEN = f"between {_OPEN} and {_CLOSE}."
# up to the next tag and no further: a model may repeat one endlessly, and each would be searched to the end
_CALL = re.compile(f"{_OPEN}((?:(?!{_OPEN}).)*?){_CLOSE}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """How calls are found, read and written."""

    rules: str
    place: str
    """Says in a correction where or how to write a call."""
    hint: str = JSON_HINT
    """Ends the correction of a call in another form."""
    pattern: re.Pattern[str]
    """Where a call stands."""
    parse: Callable[[re.Match[str]], tuple[str, ...]]
    """The actions of a call; raises `MalformedCall`."""
    write: Callable[[str], str]


def parse_tool_calls(reply: str, form: CallForm, limit: int, *, thinking: bool) -> ParsedReply:
    """Parse all calls of a reply, in order; if one cannot be parsed, all are refused."""
    found = list(form.pattern.finditer(reply))
    ends, starts = [0, *(match.end() for match in found)], [*(match.start() for match in found), len(reply)]
    before, *after = (reply[end:start] for end, start in zip(ends, starts, strict=True))
    inner = [match[1] for match in found] if form.pattern is _CALL else []
    if any(tag in text for tag in (_OPEN, _CLOSE) for text in (before, *inner, *after)):
        return refuse(f"A tool call is not whole. Write each {form.place}")
    if not found:
        return refuse(f"Your reply has no tool call. Write one {form.place}")
    if any(text.strip() for text in after):
        return refuse("Text follows a tool call. End your reply after the last one.")
    if not thinking and before.strip():
        return refuse("Text stands before the tool call. Write the call alone.")
    try:
        actions = [action for match in found for action in form.parse(match)]
    except MalformedCall as error:
        problem = str(error).replace(JSON_HINT, form.hint)
        return refuse(problem) if len(found) <= limit else refuse_many(len(found), limit)
    return accept(*actions) if len(actions) <= limit else refuse_many(len(actions), limit)


def refuse_many(count: int, limit: int) -> ParsedReply:
    return refuse(f"Your reply has {count} tool calls. Write no more than {limit}.")


def unreadable_replies(limit: int, *, thinking: bool) -> tuple[str, ...]:
    """Return one refused reply per reason."""
    call = f"{_OPEN}a{_CLOSE}"
    return ("", _OPEN, f"{call} a", *(() if thinking else (f"a {call}",)), call * (limit + 1), f"{_OPEN}{_CLOSE}")


# --- as the template writes them -----------------------------------------------------------------------------------


def templated(dialect: CallDialect, box: Toolbox) -> CallForm:
    """Calls in the dialect of the model's own template."""
    is_hermes, example = dialect.name == "hermes", dialect.write(box.example)
    return CallForm(
        rules="",
        place=_BETWEEN if is_hermes else f"like this:\n{example}",
        hint=JSON_HINT if is_hermes else f"Write it like this:\n{example}",
        pattern=_CALL if dialect.tagged else dialect.pattern,
        parse=lambda match: tuple(box.to_action(call) for call in _load_strictly(dialect, match)),
        write=lambda action: "\n".join(dialect.write(call) for call in box.to_calls(action)),
    )


def _load_strictly(dialect: CallDialect, match: re.Match[str]) -> tuple[ToolCall, ...]:
    if dialect.name != "hermes":
        return dialect.load(match)
    call = load_json(match[1])
    if not isinstance(call, dict) or set(call) != {"name", "arguments"} or not isinstance(call["name"], str):
        raise MalformedCall(f"The tool call has another form. {JSON_HINT}")
    if not isinstance(call["arguments"], dict):
        raise MalformedCall("The arguments of the tool call are no object. Write {} where there are none.")
    return (ToolCall(call["name"], call["arguments"]),)


# --- the bare action, where the template says nothing --------------------------------------------------------------


def _parse_bare(match: re.Match[str]) -> tuple[str, ...]:
    if action := match[1].strip():
        return (action,)
    raise MalformedCall(f"The tool call is empty. Write the action after {_OPEN}.")


TAGGED = CallForm(
    rules=f"Act by tool calls, each of one action:\n{_OPEN}the action{_CLOSE}\n",
    place=_BETWEEN,
    pattern=_CALL,
    parse=_parse_bare,
    write=lambda action: f"{_OPEN}{action}{_CLOSE}",
)
