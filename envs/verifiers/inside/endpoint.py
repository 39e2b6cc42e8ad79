"""A chat endpoint on loopback whose model is our agent: a request becomes an event of its episode, an action the reply.

A request names its episode as its model. That name is as good as a key, as nobody else can know it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from .messages import parse_calls

__all__ = ["Endpoint", "write_reply"]

_LARGEST = 1 << 26
_Answer = Callable[[Mapping[str, Any]], Any]


class Endpoint:
    def __init__(self) -> None:
        self._rollouts: dict[str, _Answer] = {}
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def enter(self, model: str, answer: _Answer) -> None:
        self._rollouts[model] = answer

    def leave(self, model: str) -> None:
        self._rollouts.pop(model, None)

    async def _complete(self, request: web.Request) -> web.Response:
        asked = await request.json()
        answer = self._rollouts.get(asked.get("model"))
        if answer is None:
            return web.json_response({"error": {"message": "no such model", "type": "not_found"}}, status=404)
        return web.json_response(await answer(asked))


def write_reply(action: str, asked: Mapping[str, Any], number: int) -> dict[str, Any]:
    """An action in the form of a completion, which calls tools where it is written as calls of them."""
    tools = {tool["function"]["name"] for tool in asked.get("tools") or ()}
    calls = [
        {
            "id": f"call-{number}-{place}",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for place, call in enumerate(parse_calls(action, tools))
    ]
    message = {"role": "assistant", "content": None if calls else action, **({"tool_calls": calls} if calls else {})}
    reason = "tool_calls" if calls else "stop"
    return {
        "id": f"reply-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": asked["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
