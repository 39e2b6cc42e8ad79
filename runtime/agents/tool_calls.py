"""Tool calls between tags: as JSON where the model's own template writes them so, else the bare action.

There is one tool, to act. Templates of the Hermes kind, Qwen's among them, write its call as

    <tool_call>
    {"name": "act", "arguments": {"action": "go north"}}
    </tool_call>

Where the template has no tools, the rules ask for `<tool_call>go north</tool_call>`, which even a vocabulary of words
can spell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .messages import ParsedReply, accept, refuse

__all__ = ["ACT", "EXAMPLE", "TAGGED", "TEMPLATED", "Tool", "parse_tool_calls", "unreadable_replies"]

Tool = Mapping[str, Any]
"""A tool as chat templates take it."""

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
# up to the next tag and no further: a model may say one over and over, and each would be looked for to the end
_CALL = re.compile(f"{_OPEN}((?:(?!{_OPEN}).)*?){_CLOSE}", re.DOTALL)
_NAME, _ARGUMENT = "act", "action"

ACT: Tool = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "Takes one action in the environment and tells what came of it.",
        "parameters": {
            "type": "object",
            "properties": {_ARGUMENT: {"type": "string", "description": "One action, as the environment expects it."}},
            "required": [_ARGUMENT],
        },
    },
}
EXAMPLE = {_ARGUMENT: "go north"}
"""Arguments that show how a template writes a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """Format of the text between the tags."""

    rules: str
    parse: Callable[[str], ParsedReply]
    write: Callable[[str], str]


def parse_tool_calls(reply: str, form: CallForm, limit: int, *, thinking: bool) -> ParsedReply:
    """Parse all calls of a reply, in order; one that cannot be read spoils the others."""
    before, *rest = _CALL.split(reply)
    found, after = rest[::2], rest[1::2]
    if any(tag in text for tag in (_OPEN, _CLOSE) for text in (before, *found, *after)):
        return refuse(f"A tool call is not whole. Write each between {_OPEN} and {_CLOSE}.")
    if not found:
        return refuse(f"Your reply has no tool call. Write one between {_OPEN} and {_CLOSE}.")
    if any(text.strip() for text in after):
        return refuse("Text follows a tool call. End your reply after the last one.")
    if not thinking and before.strip():
        return refuse("Text stands before the tool call. Write the call alone.")
    if len(found) > limit:
        return refuse(f"Your reply has {len(found)} tool calls. Write no more than {limit}.")
    parsed = [form.parse(call) for call in found]
    problem = next((each.problem for each in parsed if not each.actions), "")
    return refuse(problem) if problem else accept(*(action for each in parsed for action in each.actions))


def unreadable_replies(limit: int, *, thinking: bool) -> tuple[str, ...]:
    """Return one refused reply per reason."""
    call = f"{_OPEN}a{_CLOSE}"
    return ("", _OPEN, f"{call} a", *(() if thinking else (f"a {call}",)), call * (limit + 1), f"{_OPEN}{_CLOSE}")


# --- JSON, as the template writes it -------------------------------------------------------------------------------


def _parse_json(text: str) -> ParsedReply:
    try:
        call = json.loads(text, object_pairs_hook=_refuse_duplicates)
    except _DuplicateNameError:
        return refuse("The tool call gives one name twice. Write each name once.")
    except (ValueError, RecursionError):
        return refuse("The tool call is not JSON. Write an object with 'name' and 'arguments'.")
    if not isinstance(call, dict) or set(call) != {"name", "arguments"}:
        return refuse("The tool call has another form. Write an object with 'name' and 'arguments'.")
    if call["name"] != _NAME:
        return refuse(f"There is no such tool. Call '{_NAME}'.")
    arguments = call["arguments"]
    action = arguments.get(_ARGUMENT) if isinstance(arguments, dict) and len(arguments) == 1 else None
    if not isinstance(action, str) or not action.strip() or _has_lone_surrogate(action):
        return refuse(f"'{_NAME}' takes one argument, '{_ARGUMENT}', which is a text and not empty.")
    return accept(action)


class _DuplicateNameError(Exception):
    """An object has one name twice; `json` alone would keep the last."""


def _refuse_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _DuplicateNameError
    return found


def _has_lone_surrogate(text: str) -> bool:
    """Return whether the text holds a lone surrogate, which JSON can spell and UTF-8 cannot."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _write_json(action: str) -> str:
    call = json.dumps({"name": _NAME, "arguments": {_ARGUMENT: action}}, ensure_ascii=False)
    # a tag within the action must neither open nor close a call, and JSON has another way to spell it
    spelt = call.replace("<", "\\u003c") if _OPEN in call or _CLOSE in call else call
    return f"{_OPEN}\n{spelt}\n{_CLOSE}"


TEMPLATED = CallForm(rules="", parse=_parse_json, write=_write_json)

# --- the bare action, where the template says nothing --------------------------------------------------------------


def _parse_bare(text: str) -> ParsedReply:
    action = text.strip()
    return accept(action) if action else refuse(f"The tool call is empty. Write the action after {_OPEN}.")


TAGGED = CallForm(
    rules=f"Act by tool calls, each of one action:\n{_OPEN}the action{_CLOSE}\n",
    parse=_parse_bare,
    write=lambda action: f"{_OPEN}{action}{_CLOSE}",
)
