"""The 0.1 line of verifiers: `load_environment` makes an `Environment`, whose rollout calls a client of ours."""

from __future__ import annotations

import importlib
import json
from typing import Any

from .episode import Episode
from .messages import Refused, field, join_texts, number_of, parse_calls, since_reply
from .rubric_guard import guard_rubric, raise_lost_calls

__all__ = ["FirstLine"]


class FirstLine:
    def __init__(self) -> None:
        self._environment: Any = None
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._tools: list[dict[str, Any]] = []

    async def load(self, name: str, args: dict[str, Any], max_steps: int, **settings: Any) -> dict[str, Any]:
        from verifiers import Environment

        if settings["env"]:
            raise Refused("option 'env' belongs to later lines of verifiers: leave it out, 'args' is what this one has")
        environment = _load(name, args)
        if not isinstance(environment, Environment):
            raise Refused(f"'{name}' makes no verifiers environment, but a {type(environment).__name__}")
        if getattr(environment, "max_turns", 0) is not None and getattr(environment, "max_turns", 0) <= 0:
            environment.max_turns = max_steps
        guard_rubric(environment.rubric)
        self._environment = environment
        self._rows = {"train": _rows_of(environment.get_dataset), "test": _rows_of(environment.get_eval_dataset)}
        if self._rows["test"] == self._rows["train"]:
            self._rows["test"] = []  # it has no tasks held out, and gives those of training instead
        self._tools = [_dump(tool) for tool in getattr(environment, "tool_defs", None) or ()]
        return {
            "tasks": {split: len(rows) for split, rows in self._rows.items()},
            "prompt": getattr(environment, "system_prompt", None) or "",
            "max_turns": getattr(environment, "max_turns", None),
            "tools": self._tools,
        }

    def open(self, split: str, number: int) -> Episode:
        return _Rollout(self._environment, self._rows[split][number], {tool["name"] for tool in self._tools})

    async def close(self) -> None:
        return None


def _load(name: str, args: dict[str, Any]) -> Any:
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


def _rows_of(get: Any) -> list[dict[str, Any]]:
    try:
        return [dict(row) for row in get()]
    except ValueError:  # how verifiers says that there is no such set
        return []


def _dump(tool: Any) -> dict[str, Any]:
    return {name: field(tool, name) for name in ("name", "description", "parameters")}


class _Rollout(Episode):
    def __init__(self, environment: Any, row: dict[str, Any], tools: set[str]) -> None:
        super().__init__()
        self._environment, self._row, self._tools = environment, row, tools
        self._turns = 0

    async def ask(self, messages: list[Any]) -> Any:
        """What the environment's client calls: the messages since the last reply go out, an action comes in."""
        new = since_reply(messages) if self._turns else messages
        return self._reply(await self.reply_to(join_texts(new, getattr(self._environment, "system_prompt", None))))

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

    async def play(self) -> dict[str, Any]:
        state = await self._environment.rollout(dict(self._row), _make_client(self), "policy", {})
        if state.get("error") is not None:
            raise RuntimeError(f"the rollout failed: {state['error']!r}")
        with raise_lost_calls():
            await self._environment.rubric.score_rollout(state)
        if state.get("reward") is None:
            raise RuntimeError("the rubric gave no reward")
        completion = list(state.get("completion") or ())
        metrics = {name: number_of(value) for name, value in (state.get("metrics") or {}).items()}
        return {
            "text": join_texts(since_reply(completion)),
            "reward": float(state["reward"]),
            "metrics": {name: value for name, value in metrics.items() if value is not None},
            "why": str(state.get("stop_condition") or ""),
        }


def _make_client(rollout: _Rollout) -> Any:
    from verifiers.clients import Client

    class Policy(Client):  # type: ignore[misc, type-arg, unused-ignore]
        """What verifiers takes for the model's client."""

        async def get_response(self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **_: Any) -> Any:
            return await rollout.ask(list(prompt))

        async def close(self) -> None:
            return None

        def setup_client(self, config: Any) -> Any:
            return config

        async def _unused(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError("replies come from outside")

        to_native_tool = to_native_prompt = get_native_response = _unused
        raise_from_native_response = from_native_response = _unused

    return Policy(object())
