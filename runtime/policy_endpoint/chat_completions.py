"""`/v1/chat/completions`: a request's JSON to a `PolicyRequest`, an answer to JSON, whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...envs.protocol import ToolSchema
from .api_errors import bad_request, unsupported
from .messages import read_chat_messages, read_tool
from .policy import Answer, PolicyRequest, Usage
from .wire import check_neutral, read_choice, read_number, read_stop, read_whole, split_text

__all__ = ["completion", "completion_chunks", "read_chat_request", "read_tools", "usage_of"]

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "top_logprobs": (0,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "functions": ([],),
    "function_call": ("none",),
    "audio": ({},),
}
"""Keys that may be given with these values alone."""


def read_chat_request(data: Mapping[str, Any]) -> PolicyRequest:
    check_neutral(data, _NEUTRAL)
    tools = read_tools(data.get("tools"))
    calls, forced = read_choice(data.get("tool_choice"), tools)
    most = [each for name in ("max_completion_tokens", "max_tokens") if (each := read_whole(data, name, 1)) is not None]
    return PolicyRequest(
        messages=read_chat_messages(data.get("messages")),
        tools=tools,
        calls=calls,
        forced=forced,
        parallel=data.get("parallel_tool_calls") is not False,
        max_tokens=min(most, default=None),
        stop=read_stop(data),
        temperature=read_number(data, "temperature", 0, 2),
        top_p=read_number(data, "top_p", 1e-6, 1),
        seed=read_whole(data, "seed", -(2**63)),
    )


def read_tools(given: Any) -> tuple[ToolSchema, ...]:
    """Read `tools` of a request for a chat completion."""
    if given is None:
        return ()
    if not isinstance(given, list):
        raise bad_request("expected 'tools' to be a list", "tools")
    for at, each in enumerate(given):
        if not isinstance(each, Mapping) or each.get("type") != "function":
            raise unsupported(f"tools[{at}]", f"expected 'tools[{at}]' to be of type 'function'")
    return tuple(read_tool(each.get("function"), f"tools[{at}].function") for at, each in enumerate(given))


def completion(answer: Answer, data: Mapping[str, Any], name: str, created: int) -> dict[str, Any]:
    """Write an answer as a whole."""
    choice = {"index": 0, "message": _message(answer, name), "finish_reason": answer.finish, "logprobs": None}
    if data.get("logprobs"):
        choice["logprobs"] = _logprobs(answer)
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": created,
        "model": data["model"],
        "choices": [choice],
        "usage": usage_of(answer.usage),
    }


def _message(answer: Answer, name: str) -> dict[str, Any]:
    reply = answer.reply
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = _calls(answer, name)
        message["content"] = reply.text or None
    return message


def _calls(answer: Answer, name: str) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{name}_{at}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for at, call in enumerate(answer.reply.calls)
    ]


def _logprobs(answer: Answer) -> dict[str, Any]:
    pairs = zip(answer.sampled.ids, answer.sampled.logprobs, strict=True)
    content = [
        {"token": (text := answer.spell(token)), "logprob": logprob, "bytes": [*text.encode()], "top_logprobs": []}
        for token, logprob in pairs
    ]
    return {"content": content, "refusal": None}


def usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.held},
    }


def completion_chunks(answer: Answer, data: Mapping[str, Any], name: str, created: int) -> Iterator[dict[str, Any]]:
    """Write an answer as the chunks of a stream."""
    head = {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion.chunk",
        "created": created,
        "model": data["model"],
    }

    def chunk(delta: dict[str, Any], finish: str | None = None, logprobs: Any = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""}, logprobs=_logprobs(answer) if data.get("logprobs") else None)
    for piece in split_text(answer.reply.reasoning):
        yield chunk({"reasoning_content": piece})
    for piece in split_text(answer.reply.text):
        yield chunk({"content": piece})
    for at, call in enumerate(_calls(answer, name)):
        function = call["function"]
        yield chunk({"tool_calls": [{**call, "index": at, "function": {**function, "arguments": ""}}]})
        yield chunk({"tool_calls": [{"index": at, "function": {"arguments": function["arguments"]}}]})
    yield chunk({}, answer.finish)
    if (data.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": usage_of(answer.usage)}
