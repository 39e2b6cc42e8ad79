"""A tool-calling agent of smolagents (package `smolagents`). It plays one episode; its task is on standard input.

This SDK shows past calls to the model as text of its own, so that each of its requests begins a segment.
"""

import json
import os
import sys
from contextlib import redirect_stdout
from typing import Any
from urllib.request import Request, urlopen

from smolagents import OpenAIModel, Tool, ToolCallingAgent


def call(name: str, arguments: Any) -> Any:
    """Call a tool of the environment."""
    request = Request(
        os.environ["AGYM_SESSION_URL"] + "/step",
        json.dumps({"name": name, "arguments": arguments}).encode(),
        {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    with urlopen(request) as reply:
        return json.load(reply)


class EnvironmentTool(Tool):
    skip_forward_signature_validation = True
    output_type = "string"

    def __init__(self, tool: Any) -> None:
        self.name, self.description = tool["name"], tool["description"]
        self.inputs = tool["parameters"]["properties"]
        self.done = False
        super().__init__()

    def forward(self, **arguments: Any) -> str:
        step = call(self.name, arguments)
        self.done = step["done"]
        return str(step["observation"])


def main() -> None:
    task = json.load(sys.stdin)
    tools = [EnvironmentTool(each["function"]) for each in task["tools"]]
    agent = ToolCallingAgent(tools, OpenAIModel(os.environ["OPENAI_MODEL"]), max_steps=task["turns"])
    # its own prompt is longer than a tiny model's context
    instructions = f"{task['prompt']}\n\nMake one call in a reply, and write nothing after that.".strip()
    agent.prompt_templates["system_prompt"] = instructions
    for _ in agent.run(task["observation"], stream=True):
        if any(tool.done for tool in tools):
            break


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):  # where its log goes
        main()
    print(json.dumps({}))
