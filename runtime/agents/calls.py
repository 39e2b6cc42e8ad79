"""Tool calls as model families write them: found in a text, and written.

Each dialect has one regular expression of where its calls stand, and one function that turns what is found into names
and arguments. What is found is data of the model's: nothing in it runs, and what cannot be read is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "DIALECTS",
    "CallDialect",
    "FoundCall",
    "MalformedCall",
    "ToolCall",
    "Untyped",
    "find_calls",
    "is_call",
    "load_call",
    "load_json",
]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model has written."""

    name: str
    arguments: Mapping[str, Any]


class MalformedCall(ValueError):
    """The reason why a text is no call, for the agent."""


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A place in a text where a call stands, and what it says or why it cannot be read."""

    start: int
    end: int
    calls: tuple[ToolCall, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDialect:
    """How one group of families writes a call."""

    name: str
    tagged: bool = False
    """Whether a call stands between `<tool_call>` tags."""
    pattern: re.Pattern[str]
    load: Callable[[re.Match[str]], tuple[ToolCall, ...]]
    write: Callable[[ToolCall], str]


def find_calls(text: str) -> list[FoundCall]:
    """Find the calls of the first dialect that the text has any of."""
    for dialect in DIALECTS:
        if found := [_load(dialect, match) for match in dialect.pattern.finditer(text)]:
            return found
    return []


def _load(dialect: CallDialect, match: re.Match[str]) -> FoundCall:
    try:
        return FoundCall(match.start(), match.end(), dialect.load(match))
    except MalformedCall as error:
        return FoundCall(match.start(), match.end(), (), str(error))


# --- JSON ----------------------------------------------------------------------------------------------------------


class _DuplicateNameError(Exception):
    """An object has one name twice; `json` alone would keep the last."""


def _refuse_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _DuplicateNameError
    return found


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def load_json(text: str) -> Any:
    """Load JSON that can be sent on: no name twice, no NaN, no half of a surrogate pair."""
    try:
        data = json.loads(text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
        json.dumps(data, ensure_ascii=False).encode()
    except _DuplicateNameError:
        raise MalformedCall("The tool call gives one name twice. Write each name once.") from None
    except UnicodeEncodeError:
        raise MalformedCall("The tool call holds half of a letter. Write whole ones.") from None
    except (ValueError, RecursionError):
        raise MalformedCall("The tool call is not JSON. Write an object with 'name' and 'arguments'.") from None
    return data


_NAMES = ("name", "function_name")
_ARGUMENTS = ("arguments", "parameters", "args")


def load_call(data: Any) -> ToolCall:
    """Turn an object into a call; the arguments may be JSON in a text, as some templates have them."""
    if isinstance(data, dict) and isinstance(data.get("function"), dict):
        data = data["function"]
    if not isinstance(data, dict):
        raise MalformedCall("The tool call has another form. Write an object with 'name' and 'arguments'.")
    names, arguments = ([data[key] for key in keys if key in data] for keys in (_NAMES, _ARGUMENTS))
    if len(names) != 1 or len(arguments) > 1 or not isinstance(names[0], str):
        raise MalformedCall("The tool call has another form. Write an object with 'name' and 'arguments'.")
    given = arguments[0] if arguments else {}
    given = load_json(given) if isinstance(given, str) else given
    if not isinstance(given, dict):
        raise MalformedCall("The arguments of the tool call are no object. Write {} where there are none.")
    return ToolCall(names[0], given)


def is_call(data: Any) -> bool:
    """Return whether JSON says of itself that it is a call."""
    inner = data.get("function", data) if isinstance(data, dict) else None
    return isinstance(inner, dict) and any(k in inner for k in _NAMES) and any(k in inner for k in _ARGUMENTS)


def _load_many(text: str) -> tuple[ToolCall, ...]:
    data = load_json(_without_fence(text))
    return tuple(load_call(each) for each in (data if isinstance(data, list) else [data]))


def _without_fence(text: str) -> str:
    return re.sub(r"\A```\w*\n?|\n?```\Z", "", text.strip())


def _write_json(call: ToolCall, key: str = "arguments") -> str:
    return json.dumps({"name": call.name, key: dict(call.arguments)}, ensure_ascii=False)


# --- the dialects --------------------------------------------------------------------------------------------------

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


def _load_tagged(match: re.Match[str]) -> tuple[ToolCall, ...]:
    """Between the tags of Hermes stands JSON; of Qwen3.5 and of GLM, names and values between further tags."""
    body = match[1].strip()
    if function := _FUNCTION.fullmatch(body):
        pairs = _PARAMETER.findall(function[2])
        rest = _PARAMETER.sub("", function[2])
    elif arguments := _GLM.fullmatch(body):
        function, pairs, rest = arguments, _GLM_ARGUMENT.findall(arguments[2]), _GLM_ARGUMENT.sub("", arguments[2])
    else:
        return _load_many(body)
    if rest.strip() or len({name for name, _ in pairs}) < len(pairs):
        raise MalformedCall("An argument of the tool call is not whole, or given twice. Write each once.")
    return (ToolCall(function[1].strip(), {name.strip(): Untyped(value) for name, value in pairs}),)


class Untyped(str):
    """A value without quotes: the tool's schema says what it is."""

    __slots__ = ()


_FUNCTION = re.compile(r"<function=([^>\n]+)>(.*)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?((?:(?!<parameter=).)*?)\n?</parameter>", re.DOTALL)
_GLM = re.compile(r"([\w.-]+)\s*((?:<arg_key>.*)?)", re.DOTALL)
_GLM_ARGUMENT = re.compile(
    r"<arg_key>((?:(?!<arg_key>).)*?)</arg_key>\s*<arg_value>((?:(?!<arg_value>).)*?)</arg_value>", re.DOTALL
)


def _write_xml(call: ToolCall) -> str:
    values = "".join(f"<parameter={name}>\n{_as_text(value)}\n</parameter>\n" for name, value in call.arguments.items())
    return f"{_OPEN}\n<function={call.name}>\n{values}</function>\n{_CLOSE}"


def _write_glm(call: ToolCall) -> str:
    pairs = "".join(
        f"<arg_key>{name}</arg_key>\n<arg_value>{_as_text(value)}</arg_value>\n"
        for name, value in call.arguments.items()
    )
    return f"{_OPEN}{call.name}\n{pairs}{_CLOSE}"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_hermes(call: ToolCall) -> str:
    text = _write_json(call)
    # a tag within an argument must neither open nor close a call, and JSON has another way to spell it
    return f"{_OPEN}\n{text.replace('<', chr(92) + 'u003c') if _OPEN in text or _CLOSE in text else text}\n{_CLOSE}"


def _load_mistral(match: re.Match[str]) -> tuple[ToolCall, ...]:
    """A list of calls, or since its eleventh tokenizer the name of each and its arguments."""
    if named := _MISTRAL.fullmatch(match[1].strip()):
        return (load_call({"name": named[1], "arguments": load_json(named[2])}),)
    return _load_many(match[1])


_MISTRAL = re.compile(r"([\w.-]+)\s*(?:\[CALL_ID\]\s*\w+\s*)?\[ARGS\](.*)", re.DOTALL)


def _load_deepseek(match: re.Match[str]) -> tuple[ToolCall, ...]:
    before, body = match[1].strip(), match[2].strip()
    # V3 and R1 write the kind of tool, then its name on the same line as the separator; V3.1 the name alone
    name, found, rest = body.partition("\n")
    if found and rest.lstrip().startswith("```") and before == "function":
        return (load_call({"name": name.strip(), "arguments": load_json(_without_fence(rest))}),)
    return (load_call({"name": before, "arguments": load_json(_without_fence(body))}),)


def _load_whole(match: re.Match[str]) -> tuple[ToolCall, ...]:
    """Llama 3 gives nothing but the object, several with semicolons between them."""
    return tuple(load_call(load_json(part)) for part in re.split(r"(?<=\})\s*;\s*(?=\{)", match[1].strip()))


_TAGGED = re.compile(f"{_OPEN}((?:(?!{_OPEN}).)*?)(?:{_CLOSE}|\\Z)", re.DOTALL)
# up to the next tag and no further: a model may say one over and over, and each would be looked for to the end
_KEY = r'"(?:name|function_name)"'

DIALECTS = (
    CallDialect(name="hermes", tagged=True, pattern=_TAGGED, load=_load_tagged, write=_write_hermes),
    CallDialect(name="qwen3.5", tagged=True, pattern=_TAGGED, load=_load_tagged, write=_write_xml),
    CallDialect(name="glm", tagged=True, pattern=_TAGGED, load=_load_tagged, write=_write_glm),
    CallDialect(
        name="mistral",
        pattern=re.compile(r"\[TOOL_CALLS\]((?:(?!\[TOOL_CALLS\]).)*)", re.DOTALL),
        load=_load_mistral,
        write=lambda call: f"[TOOL_CALLS] [{_write_json(call)}]",
    ),
    CallDialect(
        name="deepseek",
        pattern=re.compile(
            r"(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>((?:(?!<｜tool).)*)<｜tool▁sep｜>"
            r"((?:(?!<｜tool).)*)<｜tool▁call▁end｜>(?:\s*<｜tool▁calls▁end｜>)?",
            re.DOTALL,
        ),
        load=_load_deepseek,
        write=lambda call: (
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.name}\n```json\n"
            f"{json.dumps(dict(call.arguments), ensure_ascii=False)}\n```<｜tool▁call▁end｜>"
        ),
    ),
    CallDialect(
        name="llama",
        pattern=re.compile(
            rf"\A\s*(?:<\|python_tag\|>)?\s*(\{{\s*{_KEY}\s*:.*\}})\s*(?:<\|eom_id\|>)?\s*\Z", re.DOTALL
        ),
        load=_load_whole,
        write=lambda call: _write_json(call, "parameters"),
    ),
)
"""Hermes is that of Qwen2.5 and Qwen3, and of the small models made like them."""
