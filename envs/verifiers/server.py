"""Runs in the interpreter of an environment's own folder: its rollouts, with our agent in place of the model.

Started as a script. It needs the standard library and `verifiers`, and speaks in lines of JSON over standard input and
output. Every model call of a rollout becomes an answer to us, and our next action is what the model said.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import threading
from typing import Any

__all__ = ["main"]


class Refused(Exception):
    """A mistake in the options, with the sentence that says so."""


def load(name: str, args: dict[str, Any]) -> Any:
    module_name, _, function = name.partition(":")
    module_name = module_name.replace("-", "_")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise Refused(f"no module '{error.name}' is installed there") from error
        raise Refused(f"'{module_name}' needs the module '{error.name}', which is not installed there") from error
    make = getattr(module, function or "load_environment", None)
    if not callable(make):
        raise Refused(f"'{module_name}' has no function '{function or 'load_environment'}'")
    try:
        return make(**args)
    except (TypeError, ValueError) as error:
        raise Refused(f"'{module_name}' does not load with these args: {error}") from error


def text_of(message: Any) -> str:
    content = field(message, "content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(field(part, "text") or f"[{field(part, 'type')}]") for part in content)


def field(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)


class Episode:
    """One rollout; the model's turns are handed out and in."""

    def __init__(self, environment: Any, row: dict[str, Any], tools: set[str]) -> None:
        self._environment, self._row, self._tools = environment, row, tools
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._action: asyncio.Future[str] | None = None
        self._turns = 0
        self._task = asyncio.ensure_future(self._play())

    async def event(self) -> dict[str, Any]:
        return await self._events.get()

    def act(self, action: str) -> None:
        if self._action is None or self._action.done():
            raise RuntimeError("the rollout waits for no action")
        self._action.set_result(action)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def ask(self, messages: list[Any]) -> Any:
        """What the environment's client calls: the messages since the last reply go out, an action comes in."""
        self._action = asyncio.get_running_loop().create_future()
        self._events.put_nowait({"text": self._new_text(messages)})
        return self._reply(await self._action)

    def _new_text(self, messages: list[Any]) -> str:
        spoken = [number for number, message in enumerate(messages) if field(message, "role") == "assistant"]
        new = messages[spoken[-1] + 1 :] if spoken and self._turns else messages
        system = getattr(self._environment, "system_prompt", None)
        shown = [m for m in new if not (field(m, "role") == "system" and text_of(m) == system)]
        return "\n\n".join(text_of(message) for message in shown)

    def _reply(self, action: str) -> Any:
        from verifiers.types import Response, ResponseMessage, ToolCall

        self._turns += 1
        calls = [
            ToolCall(id=f"call-{self._turns}-{number}", name=call["name"], arguments=json.dumps(call["arguments"]))
            for number, call in enumerate(parse_calls(action, self._tools))
        ]
        message = ResponseMessage(
            content="" if calls else action,
            tool_calls=calls or None,
            finish_reason="tool_calls" if calls else "stop",
            is_truncated=False,
        )
        return Response(id=f"reply-{self._turns}", created=0, model="policy", message=message)

    async def _play(self) -> None:
        try:
            state = await self._environment.rollout(dict(self._row), make_client(self), "policy", {})
            if state.get("error") is not None:
                raise RuntimeError(f"the rollout failed: {state['error']!r}")
            await self._environment.rubric.score_rollout(state)
            self._events.put_nowait(describe_end(state))
        except Exception as error:
            self._events.put_nowait({"fault": f"{type(error).__name__}: {error}"})


def describe_end(state: Any) -> dict[str, Any]:
    completion = list(state.get("completion") or ())
    spoken = [number for number, message in enumerate(completion) if field(message, "role") == "assistant"]
    last = completion[spoken[-1] + 1 :] if spoken else completion
    return {
        "text": "\n\n".join(text_of(message) for message in last),
        "reward": float(state.get("reward") or 0.0),
        "metrics": {name: float(value) for name, value in (state.get("metrics") or {}).items() if is_number(value)},
        "cut": bool(state.get("is_truncated")),
        "why": str(state.get("stop_condition") or ""),
    }


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def parse_calls(action: str, tools: set[str]) -> list[dict[str, Any]]:
    """Calls of tools, in an action that is one JSON object or a list of them."""
    try:
        found = json.loads(action) if tools else None
    except (ValueError, RecursionError):
        return []
    calls: list[Any] = found if isinstance(found, list) else [found]
    good = all(
        isinstance(call, dict) and call.get("name") in tools and isinstance(call.get("arguments"), dict)
        for call in calls
    )
    return calls if good else []


def make_client(episode: Episode) -> Any:
    from verifiers.clients import Client

    class Policy(Client):  # type: ignore[misc, type-arg, unused-ignore]
        """What verifiers takes for the model's client."""

        async def get_response(self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **_: Any) -> Any:
            return await episode.ask(list(prompt))

        async def close(self) -> None:
            return None

        def setup_client(self, config: Any) -> Any:
            return config

        async def _unused(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError("replies come from outside")

        to_native_tool = to_native_prompt = get_native_response = _unused
        raise_from_native_response = from_native_response = _unused

    return Policy(object())


class Server:
    def __init__(self, send: Any) -> None:
        self._send = send
        self._environment: Any = None
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._tools: list[dict[str, Any]] = []
        self._episodes: dict[str, Episode] = {}

    async def answer(self, request: dict[str, Any]) -> None:
        try:
            reply = await getattr(self, f"do_{request['do']}")(**request["with"])
        except Refused as error:
            reply = {"refused": str(error)}
        except Exception as error:
            reply = {"fault": f"{type(error).__name__}: {error}"}
        self._send({"id": request["id"], **reply})

    async def do_load(self, name: str, args: dict[str, Any], max_steps: int) -> dict[str, Any]:
        try:
            from verifiers import Environment
            from verifiers.clients import Client  # noqa: F401
        except ImportError as error:
            raise Refused(f"the verifiers there has no environments of the 0.1 line ({error})") from error
        environment = load(name, args)
        if not isinstance(environment, Environment):
            raise Refused(f"'{name}' makes no verifiers environment, but a {type(environment).__name__}")
        if getattr(environment, "max_turns", 0) is not None and getattr(environment, "max_turns", 0) <= 0:
            environment.max_turns = max_steps
        self._environment = environment
        self._rows = {"train": rows_of(environment.get_dataset), "test": rows_of(environment.get_eval_dataset)}
        if self._rows["test"] == self._rows["train"]:
            self._rows["test"] = []  # it has no tasks held out, and gives those of training instead
        self._tools = [dump(tool) for tool in getattr(environment, "tool_defs", None) or ()]
        return {
            "tasks": {split: len(rows) for split, rows in self._rows.items()},
            "prompt": getattr(environment, "system_prompt", None) or "",
            "max_turns": getattr(environment, "max_turns", None),
            "tools": self._tools,
        }

    async def do_open(self, episode: str, split: str, number: int) -> dict[str, Any]:
        made = Episode(self._environment, self._rows[split][number], {tool["name"] for tool in self._tools})
        self._episodes[episode] = made
        return await made.event()

    async def do_act(self, episode: str, action: str) -> dict[str, Any]:
        made = self._episodes[episode]
        made.act(action.encode("utf-8", "replace").decode())
        return await made.event()

    async def do_end(self, episode: str) -> dict[str, Any]:
        made = self._episodes.pop(episode, None)
        if made is not None:
            await made.end()
        return {}


def rows_of(get: Any) -> list[dict[str, Any]]:
    try:
        return [dict(row) for row in get()]
    except ValueError:  # how verifiers says that there is no such set
        return []


def dump(tool: Any) -> dict[str, Any]:
    return {name: field(tool, name) for name in ("name", "description", "parameters")}


async def serve(lines: Any, answers: Any) -> None:
    loop, lock = asyncio.get_running_loop(), threading.Lock()
    requests: asyncio.Queue[str | None] = asyncio.Queue()

    def send(reply: dict[str, Any]) -> None:
        with lock:
            answers.write(json.dumps(reply) + "\n")
            answers.flush()

    def read() -> None:
        for line in lines:
            loop.call_soon_threadsafe(requests.put_nowait, line)
        loop.call_soon_threadsafe(requests.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    server, running = Server(send), set()
    while (line := await requests.get()) is not None:
        task = asyncio.ensure_future(server.answer(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)


def main() -> None:
    """What the environment prints goes to standard error, for standard output is ours."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asyncio.run(serve(sys.stdin, answers))
    os._exit(0)  # threads of the environment's own may wait for ever


if __name__ == "__main__":
    main()
