"""Tools that an agent may call, and the actions that its calls become.

An environment with tools takes a call as its action: one JSON object with `name` and `arguments`, exactly as the model
called it. Any other environment has one tool, `act`, whose argument is the action. Calls are checked against the tool's
schema before anything is sent: names, required arguments, types and listed values; all else the environment checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...envs.protocol import ToolSchema
from .calls import MalformedCall, ToolCall, Untyped, is_call, load_call, load_json

__all__ = ["ACT", "Tool", "Toolbox", "properties_of", "toolbox_for"]

Tool = Mapping[str, Any]
"""A tool as chat templates take it."""

_ACT, _ACTION = "act", "action"
ACT = ToolSchema(
    name=_ACT,
    description="Takes one action in the environment and tells what came of it.",
    parameters={
        "type": "object",
        "properties": {_ACTION: {"type": "string", "description": "One action, as the environment expects it."}},
        "required": [_ACTION],
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """Some tools, and how to convert a call of one to an action and an action to calls."""

    tools: tuple[ToolSchema, ...]
    to_action: Callable[[ToolCall], str]
    """Raises `MalformedCall`."""
    to_calls: Callable[[str], tuple[ToolCall, ...]]
    """Raises `MalformedCall` for an action that cannot be written as calls."""
    example: ToolCall
    """Shows how a template writes a call."""

    @property
    def is_act(self) -> bool:
        """Whether it is the one of an environment without tools."""
        return self.tools == (ACT,)

    @property
    def shown(self) -> tuple[Tool, ...]:
        """The tools as chat templates take them."""
        return tuple(
            {
                "type": "function",
                "function": {"name": each.name, "description": each.description, "parameters": each.parameters},
            }
            for each in self.tools
        )


def toolbox_for(tools: Sequence[ToolSchema]) -> Toolbox:
    """The tools of an environment, or the one of an environment without any."""
    if not tools:
        return Toolbox(
            tools=(ACT,),
            to_action=_act_to_action,
            to_calls=lambda action: (ToolCall(_ACT, {_ACTION: action}),),
            example=ToolCall(_ACT, {_ACTION: "go north"}),
        )
    by_name = {each.name: each for each in tools}
    return Toolbox(
        tools=tuple(tools),
        to_action=lambda call: _write_action(_check(call, by_name)),
        to_calls=lambda action: _read_action(action, by_name),
        example=ToolCall(tools[0].name, {next(iter(properties_of(tools[0])), _ACTION): "..."}),
    )


# --- one tool for all ----------------------------------------------------------------------------------------------


def _act_to_action(call: ToolCall) -> str:
    if call.name != _ACT:
        raise MalformedCall(f"There is no such tool. Call '{_ACT}'.")
    action = call.arguments.get(_ACTION) if len(call.arguments) == 1 else None
    if not isinstance(action, str) or not action.strip():
        raise MalformedCall(f"'{_ACT}' takes one argument, '{_ACTION}', which is a text and not empty.")
    return str(action)


# --- an environment's own ------------------------------------------------------------------------------------------


def _write_action(call: ToolCall) -> str:
    return json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)


def _read_action(action: str, tools: Mapping[str, ToolSchema]) -> tuple[ToolCall, ...]:
    """Read an action as calls: JSON, or a command of the tool's name and its only argument."""
    name, _, rest = action.strip().partition(" ")
    if name in tools and len(properties := properties_of(tools[name])) == 1:
        ((argument, schema),) = properties.items()
        return (ToolCall(name, {argument: _typed(Untyped(rest.strip()), schema)}),)
    data = load_json(action)
    return tuple(load_call(each) for each in (data if isinstance(data, list) else [data]) if is_call(each) or _no(each))


def _no(data: Any) -> bool:
    raise MalformedCall(f"{str(data)[:80]} is no call of a tool")


def _check(call: ToolCall, tools: Mapping[str, ToolSchema]) -> ToolCall:
    if call.name not in tools:
        raise MalformedCall(f"There is no tool '{call.name[:60]}'. The tools are {', '.join(tools)[:400]}.")
    tool = tools[call.name]
    properties = properties_of(tool)
    given = {name: _typed(value, properties.get(name)) for name, value in call.arguments.items()}
    # models write null for an argument that they leave out
    arguments = {name: value for name, value in given.items() if value is not None or _takes_null(name, tool)}
    _check_value(arguments, tool.parameters, call.name, "")
    return ToolCall(call.name, arguments)


def properties_of(tool: ToolSchema) -> Mapping[str, Any]:
    properties = tool.parameters.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _typed(value: Any, schema: Any) -> Any:
    """Convert a value that was written without quotes to the type that the schema gives it."""
    if not isinstance(value, Untyped):
        return value
    kinds = _kinds(schema)
    if not kinds or "string" in kinds:
        return str(value)
    try:
        return load_json(value)
    except MalformedCall:
        return str(value)


def _takes_null(name: str, tool: ToolSchema) -> bool:
    """Whether null is a value of its own: the argument is required, or its type does not exclude it."""
    required, kinds = tool.parameters.get("required"), _kinds(properties_of(tool).get(name))
    return (isinstance(required, Sequence) and name in required) or not kinds or "null" in kinds


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "string": ("a text", lambda value: isinstance(value, str)),
    "integer": ("a whole number", lambda value: _is_number(value) and value == value // 1),
    "number": ("a number", _is_number),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("an object", lambda value: isinstance(value, dict)),
    "null": ("null", lambda value: value is None),
}


def _kinds(schema: Any) -> tuple[str, ...]:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return (kind,) if isinstance(kind, str) else tuple(kind) if isinstance(kind, list | tuple) else ()


def _check_value(value: Any, schema: Any, tool: str, path: str) -> None:
    """Check types, listed values, required and unknown arguments; a server's patterns and references are left to the
    server, as checking them has no bounded cost."""
    if not isinstance(schema, Mapping):
        return
    where = f"'{path}' of '{tool}'" if path else f"the arguments of '{tool}'"
    kinds = [kind for kind in _kinds(schema) if kind in _TYPES]
    if kinds and not any(_TYPES[kind][1](value) for kind in kinds):
        raise MalformedCall(f"Write {' or '.join(_TYPES[kind][0] for kind in kinds)} as {where}.")
    listed = schema.get("enum")
    if isinstance(listed, Sequence) and not any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in listed
    ):
        raise MalformedCall(f"Write one of {json.dumps(list(listed), ensure_ascii=False)[:400]} as {where}.")
    if isinstance(value, dict):
        _check_members(value, schema, tool, path)
    if isinstance(value, list):
        for at, item in enumerate(value):
            _check_value(item, schema.get("items"), tool, f"{path}[{at}]")


def _check_members(value: Mapping[str, Any], schema: Mapping[str, Any], tool: str, path: str) -> None:
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    missing = [name for name in (required if isinstance(required, Sequence) else ()) if name not in value]
    if missing:
        raise MalformedCall(f"'{_join(path, str(missing[0]))}' of '{tool}' is missing.")
    unknown = [name for name in value if name not in known]
    others = {} if schema.get("patternProperties") else schema.get("additionalProperties")
    # JSON Schema allows other names unless it says otherwise; but servers mostly ignore those, and a misspelt name
    # would go unnoticed
    if unknown and (others is False or (others is None and not path and known)):
        raise MalformedCall(
            f"'{tool}' takes no argument '{_join(path, unknown[0])[:60]}', only {', '.join(known)[:400]}."
        )
    for name, inner in value.items():
        _check_value(inner, known.get(name, others), tool, _join(path, name))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
