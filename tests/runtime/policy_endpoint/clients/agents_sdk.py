"""What the OpenAI Agents SDK gets from the endpoint, as JSON: run by an interpreter that has `openai-agents`."""

import asyncio
import json
import os
from typing import Any

import openai
from agents import Agent, Model, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner, function_tool

MODELS: dict[str, type] = {"chat completions": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


@function_tool
def weather(place: str) -> str:
    """Tells the weather of a place."""
    return f"sunny in {place}"


def make(kind: str, name: str = "policy", **settings: Any) -> Model:
    return MODELS[kind](model=name, openai_client=openai.AsyncOpenAI(max_retries=0, **settings))  # type: ignore[no-any-return]


async def mistake(model: Model, say: str = "hi") -> str:
    try:
        await Runner.run(Agent(name="one", model=model), say, run_config=RunConfig(tracing_disabled=True))
    except openai.APIStatusError as error:
        return f"{error.status_code} {error.code}"
    return "none"


async def main() -> None:
    assert os.environ["OPENAI_MODEL"] == "policy"
    found: dict[str, Any] = {}
    for kind in MODELS:
        agent = Agent(name="one", instructions="Be kind.", model=make(kind), tools=[weather])
        done = await Runner.run(agent, "hi")
        streamed = Runner.run_streamed(agent, "hi")
        events = [each.type async for each in streamed.stream_events()]
        found[kind] = {
            "items": [each.type for each in done.new_items],
            "answer": done.final_output,
            "stream": ["raw_response_event" in events, streamed.final_output],
            "wrong key": await mistake(make(kind, api_key="wrong")),
            "wrong model": await mistake(make(kind, "gpt")),
            "too long": await mistake(make(kind), "word " * 5000),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
