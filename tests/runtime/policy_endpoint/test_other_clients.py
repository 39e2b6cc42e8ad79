"""LangChain's client and the Agents SDK's against the endpoint: tools, streams and errors, in their own environment."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from .conftest import Bench, Serve

HERE = Path(__file__).parent
PYTHON = HERE.parents[2] / ".venv-harness/bin/python"

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not PYTHON.exists(), reason="the SDKs are not installed: 'make harnesses' does that"),
]

CALL = '<tool_call>\n{"name": "weather", "arguments": {"place": "Rome"}}\n</tool_call>'


def answer(number: int, prompt: str) -> str:
    """Call the tool where there is one that has not said anything yet."""
    return CALL if "weather" in prompt and "sunny" not in prompt else "It is sunny."


def ask_by(serve: Serve, script: str) -> Any:
    async def ask(bench: Bench) -> bytes:
        variables = {
            "OPENAI_BASE_URL": f"{bench.endpoint.url}/v1",
            "OPENAI_API_KEY": bench.episode.key,
            "OPENAI_MODEL": "policy",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "PATH": os.environ["PATH"],
        }
        process = await asyncio.create_subprocess_exec(
            str(PYTHON),
            str(HERE / "clients" / script),
            env=variables,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()[-3000:]
        return out

    async def all_of_it() -> bytes:
        async with serve(answer) as bench:
            return await ask(bench)

    return json.loads(asyncio.run(all_of_it()).splitlines()[-1])


def test_langchains_client_calls_streams_and_reads_errors(serve: Serve) -> None:
    assert ask_by(serve, "langchain.py") == {
        "calls": [["weather", {"place": "Rome"}]],
        "after the tool": "It is sunny.",
        "stream": [True, "It is sunny."],
        "usage": True,
        "responses": "It is sunny.",
        "wrong key": "401 invalid_api_key",
        "wrong model": "404 model_not_found",
        "n=2": "400 unsupported_parameter",
        "too long": "400 context_length_exceeded",
    }


def test_the_agents_sdk_calls_streams_and_reads_errors_by_both_apis(serve: Serve) -> None:
    expected = {
        "items": ["tool_call_item", "tool_call_output_item", "message_output_item"],
        "answer": "It is sunny.",
        "stream": [True, "It is sunny."],
        "wrong key": "401 invalid_api_key",
        "wrong model": "404 model_not_found",
        "too long": "400 context_length_exceeded",
    }
    assert ask_by(serve, "agents_sdk.py") == {"chat completions": expected, "responses": expected}
