"""`/v1/responses`: a request's JSON to a `PolicyRequest`, an answer to JSON, whole or as events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from ...envs.protocol import ToolSchema
from .api_errors import bad_request, unsupported
from .messages import CallMade, ChatMessage, Role, canonical_json, join_parts, read_tool
from .policy import Answer, PolicyRequest, Usage
from .wire import check_neutral, read_choice, read_number, read_whole, split_text

__all__ = ["read_input", "read_response_request", "response", "response_events", "to_event_line"]

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {"top_logprobs": (0,), "background": (False,), "conversation": ()}
_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}


# --- the request ---------------------------------------------------------------------------------------------------


def read_response_request(data: Mapping[str, Any], earlier: tuple[ChatMessage, ...]) -> PolicyRequest:
    """`earlier` are the messages up to the end of `previous_response_id`, without its instructions."""
    check_neutral(data, _NEUTRAL)
    if ((data.get("text") or {}).get("format") or {"type": "text"}).get("type") != "text":
        raise unsupported("text.format", "'text.format' other than text is not supported; leave it out")
    tools = _read_tools(data.get("tools"))
    calls, forced = read_choice(data.get("tool_choice"), tools)
    instructions = data.get("instructions")
    opening = (ChatMessage(Role.SYSTEM, instructions),) if isinstance(instructions, str) and instructions else ()
    return PolicyRequest(
        messages=(*opening, *_merge((*earlier, *read_input(data.get("input"))))),
        tools=tools,
        calls=calls,
        forced=forced,
        parallel=data.get("parallel_tool_calls") is not False,
        max_tokens=read_whole(data, "max_output_tokens", 1),
        temperature=read_number(data, "temperature", 0, 2),
        top_p=read_number(data, "top_p", 1e-6, 1),
    )


def read_input(given: Any) -> tuple[ChatMessage, ...]:
    """Read `input`: a text, or items of which neighbouring ones of the assistant are one message."""
    if isinstance(given, str):
        return (ChatMessage(Role.USER, given),)
    if not isinstance(given, list) or not given:
        raise bad_request("expected 'input' to be a text, or a list with at least one item", "input")
    return tuple(found for at, each in enumerate(given) if (found := _read_item(each, f"input[{at}]")) is not None)


def _read_item(item: Any, param: str) -> ChatMessage | None:
    if not isinstance(item, Mapping):
        raise bad_request(f"expected an object as '{param}'", param)
    kind = item.get("type") or "message"
    if kind == "reasoning":  # not given back to the policy, whose own tokens hold it
        return None
    if kind == "function_call":
        return ChatMessage(
            Role.ASSISTANT, "", (CallMade(str(item.get("name")), canonical_json(str(item.get("arguments") or "{}"))),)
        )
    if kind == "function_call_output":
        return ChatMessage(Role.TOOL, join_parts(item.get("output"), f"{param}.output"))
    role = _ROLES.get(item.get("role") or "")
    if kind != "message" or role is None:
        raise unsupported(param, f"'{param}' is of type '{str(kind)[:40]}'; expected messages and function calls")
    text = join_parts(item.get("content"), f"{param}.content")
    return ChatMessage(role, text.strip() if role is Role.ASSISTANT else text)


def _merge(messages: tuple[ChatMessage, ...]) -> list[ChatMessage]:
    """Join what the assistant said in one turn: its text and its calls are items of their own."""
    merged: list[ChatMessage] = []
    for each in messages:
        last = merged[-1] if merged else None
        joins = last is not None and last.role is each.role is Role.ASSISTANT
        if last is not None and joins and not (each.text and (last.calls or last.text)):
            merged[-1] = ChatMessage(Role.ASSISTANT, last.text or each.text, (*last.calls, *each.calls))
        else:
            merged.append(each)
    return merged


def _read_tools(given: Any) -> tuple[ToolSchema, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise bad_request("expected 'tools' to be a list", "tools")
    for at, each in enumerate(given):
        if not isinstance(each, Mapping) or each.get("type") != "function":
            raise unsupported(f"tools[{at}]", f"expected 'tools[{at}]' to be of type 'function'")
    return tuple(read_tool(each, f"tools[{at}]") for at, each in enumerate(given))


# --- the answer ----------------------------------------------------------------------------------------------------


def response(answer: Answer, data: Mapping[str, Any], name: str, created: int) -> dict[str, Any]:
    """Write an answer as a whole."""
    return {**_frame(answer, data, name, created), "output": _output(answer, name), "usage": _usage(answer.usage)}


def _frame(answer: Answer, data: Mapping[str, Any], name: str, created: int) -> dict[str, Any]:
    is_cut = answer.finish == "length"
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": created,
        "status": "incomplete" if is_cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "instructions": data.get("instructions"),
        "max_output_tokens": data.get("max_output_tokens"),
        "model": data["model"],
        "output": [],
        "parallel_tool_calls": data.get("parallel_tool_calls") is not False,
        "previous_response_id": data.get("previous_response_id"),
        "temperature": data.get("temperature"),
        "text": {"format": {"type": "text"}},
        "tool_choice": data.get("tool_choice") or "auto",
        "tools": data.get("tools") or [],
        "top_p": data.get("top_p"),
        "metadata": data.get("metadata") or {},
        "usage": None,
    }


def _output(answer: Answer, name: str) -> list[dict[str, Any]]:
    status = "incomplete" if answer.finish == "length" else "completed"
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{name}_{at}",
            "call_id": f"call_{name}_{at}",
            "name": call.name,
            "arguments": call.arguments,
            "status": status,
        }
        for at, call in enumerate(answer.reply.calls)
    ]
    if calls and not answer.reply.text:
        return calls
    message = {
        "type": "message",
        "id": f"msg_{name}",
        "role": "assistant",
        "status": status,
        "content": [{"type": "output_text", "text": answer.reply.text, "annotations": [], "logprobs": []}],
    }
    return [message, *calls]


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.held, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }


def response_events(answer: Answer, data: Mapping[str, Any], name: str, created: int) -> Iterator[dict[str, Any]]:
    """Write an answer as the events of a stream."""
    numbers = count()

    def event(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": f"response.{kind}", "sequence_number": next(numbers), **fields}

    whole = response(answer, data, name, created)
    begun = {**_frame(answer, data, name, created), "status": "in_progress", "incomplete_details": None}
    yield event("created", response=begun)
    yield event("in_progress", response=begun)
    for at, item in enumerate(whole["output"]):
        place = {"output_index": at, "item_id": item["id"]}
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        yield event("output_item.added", output_index=at, item={**item, "status": "in_progress", **empty})
        parts = _text_events(item, place) if item["type"] == "message" else _call_events(item, place)
        for kind, fields in parts:
            yield event(kind, **fields)
        yield event("output_item.done", output_index=at, item=item)
    yield event(whole["status"], response=whole)


def _text_events(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    (part,) = item["content"]
    at = {**place, "content_index": 0}
    yield "content_part.added", {**at, "part": {**part, "text": ""}}
    for piece in split_text(part["text"]):
        yield "output_text.delta", {**at, "delta": piece, "logprobs": []}
    yield "output_text.done", {**at, "text": part["text"], "logprobs": []}
    yield "content_part.done", {**at, "part": part}


def _call_events(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "function_call_arguments.delta", {**place, "delta": item["arguments"]}
    yield "function_call_arguments.done", {**place, "arguments": item["arguments"], "name": item["name"]}


def to_event_line(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
