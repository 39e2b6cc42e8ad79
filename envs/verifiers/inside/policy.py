"""The harness that our agent plays through: a conversation with tools, in verifiers' own process.

verifiers loads a harness by the name of its module, so this one is entered in `sys.modules` under HARNESS.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import httpx
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

__all__ = ["HARNESS", "PolicyHarness"]

HARNESS = "agym_policy"


class _Config(vf.HarnessConfig):  # type: ignore[misc, unused-ignore]
    id: str = HARNESS


class PolicyHarness(vf.Harness[_Config]):  # type: ignore[misc, unused-ignore]
    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> Any:
        """Converse until a reply calls no tool; a refused request ends it as well, and verifiers knows why."""
        messages = _open(*self.resolve_prompt(data))
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                httpx.AsyncClient(base_url=endpoint, headers={"Authorization": f"Bearer {secret}"}, timeout=None)
            )
            servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
            tools, dispatch, live = await connect_mcp({"mcpServers": servers}, stack)
            while True:
                answer = await client.post("/chat/completions", json=_request(ctx.model, messages, tools))
                if answer.is_error:
                    return vf.ProgramResult(exit_code=1, stdout="", stderr=answer.text)
                reply = answer.json()["choices"][0]["message"]
                messages.append(reply)
                if not reply.get("tool_calls"):
                    return vf.ProgramResult(exit_code=0, stdout="", stderr="")
                for call in reply["tool_calls"]:
                    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                    content = await call_mcp(live, dispatch, name, arguments)
                    messages.append({"role": "tool", "tool_call_id": call["id"], "name": name, "content": content})


def _open(system: str | None, prompt: Any) -> list[dict[str, Any]]:
    opening = [] if system is None else [{"role": "system", "content": system}]
    if isinstance(prompt, str):
        return [*opening, {"role": "user", "content": prompt}]
    return [*opening, *(message_to_wire(message) for message in prompt or ())]


def _request(model: str, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"model": model, "messages": messages, **({"tools": tools} if tools else {})}


sys.modules[HARNESS] = sys.modules[__name__]
