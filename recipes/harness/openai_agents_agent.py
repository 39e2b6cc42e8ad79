"""An agent on the OpenAI Agents SDK (package `openai-agents`). It plays one episode; its task is on standard input."""

import asyncio
import json
import os
import sys
from typing import Any
from urllib.request import Request, urlopen

from agents import Agent, FunctionTool, FunctionToolResult, RunContextWrapper, Runner
from agents import ToolsToFinalOutputResult as Decision
from agents.exceptions import MaxTurnsExceeded, ModelBehaviorError


def call(name: str, arguments: str) -> Any:
    """Call a tool of the environment."""
    request = Request(
        os.environ["AGYM_SESSION_URL"] + "/step",
        json.dumps({"name": name, "arguments": arguments}).encode(),
        {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    with urlopen(request) as reply:
        return json.load(reply)


async def main() -> None:
    task, last = json.load(sys.stdin), dict[str, Any]()

    def offer(tool: Any) -> FunctionTool:
        async def invoke(context: RunContextWrapper[Any], arguments: str) -> str:
            last.update(await asyncio.to_thread(call, tool["name"], arguments))
            print(f"{tool['name']} {arguments} -> {last['observation']!r}", file=sys.stderr)
            return str(last["observation"])

        return FunctionTool(
            name=tool["name"],
            description=tool["description"],
            params_json_schema=tool["parameters"],
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )

    def stop_when_done(context: RunContextWrapper[Any], results: list[FunctionToolResult]) -> Decision:
        return Decision(is_final_output=last["done"], final_output=last["observation"])

    agent = Agent(
        name="player",
        model=os.environ["OPENAI_MODEL"],
        instructions=f"{task['prompt']}\n\nMake one call in a reply, and write nothing after that.".strip(),
        tools=[offer(each["function"]) for each in task["tools"]],
        tool_use_behavior=stop_when_done,
    )
    try:
        await Runner.run(agent, task["observation"], max_turns=task["turns"])
    except (MaxTurnsExceeded, ModelBehaviorError) as error:  # such as a reply that a limit cut off: it has lost
        print(error, file=sys.stderr)
    print(json.dumps({}))


if __name__ == "__main__":
    asyncio.run(main())
