"""Tool calls as model families write them: finding them in a text, and writing them.

Each dialect has one regular expression that locates its calls, and one function that turns a match into names and
arguments. A match is model output: nothing in it is executed, and what cannot be parsed is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "DIALECTS",
    "JSON_HINT",
    "CallDialect",
    "FoundCall",
    "MalformedCall",
    "ToolCall",
    "Untyped",
    "decode_json",
    "find_calls",
    "is_call",
    "load_call",
    "load_json",
    "load_written",
    "mask",
]

JSON_HINT = "Write an object with 'name' and 'arguments'."
"""Ends the error for a call in another form; if the model has a dialect, an example in it is shown instead."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model has written."""

    name: str
    arguments: Mapping[str, Any]


class MalformedCall(ValueError):
    """The reason why a text is not a call, for the agent."""


@dataclass(frozen=True, slots=True)
class FoundCall:
    """Where a call is in a text, and its content or why it cannot be parsed."""

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


def mask(text: str, places: Iterable[tuple[int, int]]) -> str:
    """Overwrite parts of a text with NULs, so that nothing is found in them and all else keeps its place."""
    pieces, at = list[str](), 0
    for start, end in sorted(places):
        pieces += [text[at:start], "\0" * (end - max(at, start))]
        at = max(at, end)
    return "".join([*pieces, text[at:]])


def find_calls(text: str, *, fenced: bool = False, bare: bool = False) -> list[FoundCall]:
    """Find the calls of all dialects; `fenced` adds those in blocks of JSON, `bare` those that are lines of JSON. If a
    text consists only of such lines, they are always found."""
    found = [_load_wrapped(match) for match in _WRAPPED.finditer(text)]
    found += _find_json(_without(text, found), _MARKED, _MARKED_END)
    if fenced:
        found += _find_json(_without(text, found), _FENCED, _FENCED_END)
    lines = _find_json(_without(text, found), _LINE, _LINE_END)
    if bare or (not found and _is_blank(_without(text, lines))):
        found += lines
    return sorted(found, key=lambda each: each.start)


def load_written(text: str) -> tuple[ToolCall, ...]:
    """Load the calls that a text consists of, none if it is anything else; raises `MalformedCall` for a broken one."""
    found = find_calls(text)
    if not _is_blank(_without(text, found)):
        return ()
    if problem := next((each.problem for each in found if each.problem), ""):
        raise MalformedCall(problem)
    return tuple(call for each in found for call in each.calls)


def _is_blank(text: str) -> bool:
    """Return whether nothing is left of a masked text but white space, and semicolons between calls."""
    return not text.strip("\0; \t\r\n")


def _without(text: str, calls: Iterable[FoundCall]) -> str:
    return mask(text, ((each.start, each.end) for each in calls))


def _find_json(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> list[FoundCall]:
    """Find JSON between two patterns. The opening may name the tool, and then what follows are its arguments."""
    found, at = list[FoundCall](), 0
    while match := opening.search(text, at):
        name, at = next(filter(None, match.groups()), None), match.end()
        marked = opening is _MARKED
        try:
            data, at = decode_json(text, at)
            end = closing.match(text, at)
            data = data if isinstance(data, list) else [data]
            if end is None or not (marked or (data and all(is_call(each) for each in data))):
                continue
            named = [{"name": name.strip(), "arguments": each} for each in data] if name else data
            at = end.end()
            found.append(FoundCall(match.start(), at, tuple(load_call(each) for each in named)))
        except MalformedCall as error:
            if marked or (_CALL_JSON.match(text, match.end()) and _ARGUMENTS_KEY.search(text, match.end())):
                return [*found, FoundCall(match.start(), len(text), (), str(error))]
            at = max(at, match.end() + 1)
    return found


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


_DECODER = json.JSONDecoder(object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)


def load_json(text: str) -> Any:
    """Load JSON that can be sent on: no name twice, no NaN, no half of a surrogate pair."""
    text = text.strip(" \t\n\r")
    data, end = decode_json(text, 0)
    if end < len(text):
        raise MalformedCall(f"The tool call is not JSON. {JSON_HINT}")
    return data


def decode_json(text: str, start: int) -> tuple[Any, int]:
    """Load the JSON that begins here; return also where it ends."""
    try:
        data, end = _DECODER.raw_decode(text, start)
        json.dumps(data, ensure_ascii=False).encode()
    except _DuplicateNameError:
        raise MalformedCall("The tool call gives one name twice. Write each name once.") from None
    except UnicodeEncodeError:
        raise MalformedCall("The tool call holds half of a letter. Write whole ones.") from None
    except (ValueError, RecursionError):
        raise MalformedCall(f"The tool call is not JSON. {JSON_HINT}") from None
    return data, end


_NAMES = ("name", "function_name")
_ARGUMENTS = ("arguments", "parameters", "args")


def load_call(data: Any) -> ToolCall:
    """Turn an object into a call; the arguments may be JSON in a text, as some templates have them."""
    if isinstance(data, dict) and isinstance(data.get("function"), dict):
        data = data["function"]
    if not isinstance(data, dict):
        raise MalformedCall(f"The tool call has another form. {JSON_HINT}")
    names, arguments = ([data[key] for key in keys if key in data] for keys in (_NAMES, _ARGUMENTS))
    if len(names) != 1 or len(arguments) > 1 or not isinstance(names[0], str):
        raise MalformedCall(f"The tool call has another form. {JSON_HINT}")
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
    return _load_body(match[1].strip())


def _load_body(body: str) -> tuple[ToolCall, ...]:
    """Hermes has JSON between its tags; Qwen3.5 and GLM have names and values between further tags."""
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
    """A value without quotes: the tool's schema gives its type."""

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
    """Llama 3 writes only the object; several are separated by semicolons."""
    return tuple(load_call(load_json(part)) for part in re.split(r"(?<=\})\s*;\s*(?=\{)", match[1].strip()))


_TAGGED = re.compile(f"{_OPEN}((?:(?!{_OPEN}).)*?)(?:{_CLOSE}|\\Z)", re.DOTALL)
# up to the next tag and no further: a model may repeat one endlessly, and each would be searched to the end
_KEY = r'"(?:name|function_name)"'

# --- the same with text around them, or a mark left out

_WRAPPED = re.compile(
    _TAGGED.pattern + r"|(<function=[^>\n]+>(?:(?!<function=).)*?(?:</function>|\Z))",
    re.DOTALL,
)
_CALL_JSON = re.compile(rf'(?:\[\s*)?\{{\s*(?:{_KEY}|"type"\s*:\s*"function"\s*,|"function"\s*:\s*\{{)')
_ARGUMENTS_KEY = re.compile(rf'"(?:{"|".join(_ARGUMENTS)})"\s*:')
_MARKED = re.compile(
    r"\[TOOL_CALLS\]\s*(?:([\w.-]+)\s*(?:\[CALL_ID\]\s*\w+\s*)?\[ARGS\]\s*)?"
    r"|(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>([^\n<]+)\n\s*```\w*\s*"
    r"|([^\n<]*)<｜tool▁sep｜>\s*(?:```\w*\s*)?)"
)
_MARKED_END = re.compile(r"(?:\s*```)?(?:\s*<｜tool▁call▁end｜>)?(?:\s*<｜tool▁calls▁end｜>)?")
_FENCED = re.compile(r"```(?:json|tool_?calls?)?\s*(?=[\[{])", re.IGNORECASE)
_FENCED_END = re.compile(r"\s*```")
_LINE = re.compile(rf"(?:^[ \t]*|(?<=[}}\]])\s*;\s*)(?:<\|python_tag\|>\s*)?(?={_CALL_JSON.pattern})", re.MULTILINE)
_LINE_END = re.compile(r"[ \t]*(?:<\|eo[mt]_id\|>[ \t]*)?(?:$|(?=;))", re.MULTILINE)


def _load_wrapped(match: re.Match[str]) -> FoundCall:
    body = (match[2] if match[1] is None else match[1]).strip()
    function = _FUNCTION.fullmatch(body)
    try:
        if function and function[2].lstrip().startswith("{"):
            call = load_call({"name": function[1].strip(), "arguments": load_json(function[2])})
            return FoundCall(match.start(), match.end(), (call,))
        return FoundCall(match.start(), match.end(), _load_body(body))
    except MalformedCall as error:
        return FoundCall(match.start(), match.end(), (), str(error))


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
