"""The tools of any MCP server as actions, and tasks of a user's own.

An episode has a connection of its own. It ends with the agent's answer; the score is 1 if that is right and the task's
check holds, else 0.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from ..errors import BadOption, EnvFault, EpisodeOver, UnknownTask
from ..protocol import TOOL_NAME, Env, EnvSpec, Json, Observation, Runs, Status, Step, ToolSchema
from .actions import ANSWER, MalformedCall, ServerCall, parse_calls
from .connection import Connection, ServerTool, ToolResult, clean_text
from .options import read_mcp_options
from .tasks import SPLITS, ToolTask, load_task_file

__all__ = ["SPEC", "Tools"]

_PROMPT = (
    "You have tools, which are listed with the task. Each turn, call one of them, or several at once in a list:\n"
    '{"name": "TOOL", "arguments": {"NAME": "VALUE"}}\n'
    "When you are done, give the answer, which ends the task:\n"
    '{"name": "answer", "arguments": {"text": "ANSWER"}}'
)

_TOOL_PROMPT = f"Do the task with the tools. When you are done, call '{ANSWER}', which ends the task."
_ANSWER_TOOL = ToolSchema(
    name=ANSWER,
    description="Gives the answer, which ends the task.",
    parameters={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)

SPEC = EnvSpec(
    name="mcp",
    version="1",
    summary="the tools of any MCP server as actions",
    splits=SPLITS,
    prompt=_PROMPT,
    tool_prompt=_TOOL_PROMPT,
    runs=Runs.THREAD,  # calls block: nobody else should wait for them
)


class Tools(Env):
    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_mcp_options(options)
        self._tasks = load_task_file(self._options.tasks_file)
        self.spec = replace(SPEC, max_turns=self._options.max_steps)
        self._connection: Connection | None = None
        self._task: ToolTask | None = None
        self._left = 0
        self._done: Counter[str] = Counter()
        """Calls with success, by tool."""
        self.answer = ""

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        self.check_split(split)
        return tuple(task.id for task in self._tasks.values() if task.split == split)

    def difficulty(self, task: str) -> str | None:
        return self._find(task).group

    def trivial(self, task: str) -> bool:
        return self._find(task).trivial

    def _find(self, task: str) -> ToolTask:
        if task not in self._tasks:
            raise UnknownTask(f"there is no task '{task[:60]}' in {self._options.tasks_file}")
        return self._tasks[task]

    def describe(self) -> EnvSpec:
        """The spec with the tools that the server lists, unless one has a name that chat templates could not carry."""
        tools = tuple(_to_schema(tool) for tool in self._connect(frozenset()))
        if not self._options.keep:
            self.close()
        if not all(TOOL_NAME.fullmatch(tool.name) for tool in tools):
            return self.spec
        return replace(self.spec, tools=(*tools, _ANSWER_TOOL))

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        """The seed changes nothing."""
        found = self._find(task)
        tools = self._connect(found.asked, f", for which the check of task '{found.id[:60]}' asks")
        self._task, self._left, self._done, self.answer = found, self._options.max_steps, Counter(), ""
        text = f"Task: {found.instruction}"
        if self._options.list_tools:
            text += "\n\nTools:\n" + "\n".join(f"- {clean_text(describe_tool(tool))}" for tool in tools)
        return Observation(text=text)

    def _connect(self, asked: frozenset[str], why: str = "") -> tuple[ServerTool, ...]:
        if not self._options.keep:
            self.close()
        if self._connection is None:
            self._connection = Connection(self._options)
        there = {tool.name: tool for tool in self._connection.tools}
        for name in (*self._options.tools, *self._options.excluded, *sorted(asked)):
            if name not in there:
                because = why if name in asked else ""
                raise BadOption(f"the server has no tool '{name[:60]}'{because}, only {', '.join(there)[:400]}")
        chosen = [name for name in self._options.tools or there if name not in self._options.excluded]
        usable = tuple(there[name] for name in chosen)
        if any(tool.name == ANSWER for tool in usable):
            raise BadOption(f"the server has a tool called '{ANSWER}' like ours: leave it out of the option 'tools'")
        self._usable = frozenset(tool.name for tool in usable)
        return usable

    def step(self, action: str) -> Step:
        if self._task is None or self._connection is None:
            raise EpisodeOver("mcp has no episode under way: reset it first")
        self._left -= 1
        try:
            calls = parse_calls(action, self._usable)
        except MalformedCall as reason:
            return self._finish_step(str(reason), Status.INVALID)
        if calls[0].name == ANSWER:
            return self._judge(self._task, calls[0].arguments["text"])
        results = self._connection.call(calls)
        self._done.update(call.name for call, result in zip(calls, results, strict=True) if result.good)
        good = any(result.good for result in results)
        return self._finish_step(format_results(calls, results), Status.OK if good else Status.REFUSED)

    def _finish_step(self, text: str, status: Status) -> Step:
        if not self._left:
            self.end()
        return Step(observation=Observation(text=text), truncated=not self._left, status=status)

    def _judge(self, task: ToolTask, answer: str) -> Step:
        self.answer = answer
        right = task.accepts(answer) and (task.check is None or bool(task.check(self)))
        self.end()
        return Step(observation=Observation(text="The task is over."), reward=float(right), terminated=True)

    def end(self) -> None:
        self._task = None
        if not self._options.keep:
            self.close()

    def close(self) -> None:
        connection, self._connection, self._task = self._connection, None, None
        if connection is not None:
            connection.close()

    # --- what a check may ask ---

    def called(self, tool: str) -> int:
        return self._done[tool]

    def result(self, tool: str, /, **arguments: Any) -> str:
        assert self._connection is not None
        (result,) = self._connection.call((ServerCall(tool, arguments),))
        if result.fault is not None:
            raise EnvFault(f"the check called {tool[:60]}: {result.text}", kind=result.fault)
        return result.text

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        """The solution given in the task's line."""
        return self._find(task).solution

    def noise_action(self, rng: Random) -> str | None:
        """A call without arguments, of any tool."""
        if self._task is None:
            return None
        return json.dumps({"name": rng.choice(sorted(self._usable)), "arguments": {}})

    def corpus(self) -> Iterator[str]:
        """The prompt, the tools, and the tasks with their solutions."""
        yield from (self.spec.prompt, "The task is over.")
        for name in list(self._tasks)[:1]:
            yield self.reset(name, 0).text
            self.close()
        for task in self._tasks.values():
            yield task.instruction
            yield from task.solution or ()


def _to_schema(tool: ServerTool) -> ToolSchema:
    return ToolSchema(name=tool.name, description=clean_text(tool.description), parameters=tool.schema)


def describe_tool(tool: ServerTool) -> str:
    """Describe the tool in one line, and each documented argument in another."""
    properties = tool.schema.get("properties", {})
    needed = tool.schema.get("required", ())
    arguments = ", ".join(f"{name}{'' if name in needed else '?'}: {_kind(of)}" for name, of in properties.items())
    explained = (f"    {name}: {of['description']}" for name, of in properties.items() if of.get("description"))
    first = f"{tool.name}({arguments})" + (f": {tool.description.strip()}" if tool.description else "")
    return "\n".join((first, *explained))


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return " | ".join(kind) if isinstance(kind, list) else str(kind)


def format_results(calls: Sequence[ServerCall], results: Sequence[ToolResult]) -> str:
    pairs = zip(calls, results, strict=True)
    texts = [result.text if result.good else f"{call.name} failed: {result.text}" for call, result in pairs]
    return texts[0] if len(texts) == 1 else "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))
