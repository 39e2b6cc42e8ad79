"""An episode's environment as a harness sees it: what it shows, its tools, and steps until it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...envs.protocol import EnvSpec, Observation, Status, Step
from ..agents.calls import MalformedCall, ToolCall
from ..agents.toolbox import Tool, toolbox_for
from ..policy_endpoint.api_errors import bad_request
from ..rollout.episode import Task

__all__ = ["HarnessSession", "SessionRoutes", "SessionStep", "describe_task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStep:
    """A step that a harness took."""

    after: int
    """Replies of the policy before it."""
    action: str
    step: Step
    seconds: float


class HarnessSession:
    """A session that keeps its rewards from the harness, which sees only what an agent may know."""

    def __init__(
        self,
        task: Task,
        spec: EnvSpec,
        first: Observation,
        step: Callable[[str], Awaitable[Step]],
        *,
        horizon: int,
        clock: Callable[[], float],
        num_replies: Callable[[], int],
    ) -> None:
        self.task, self.horizon = task, horizon
        self.prompt = spec.tool_prompt or spec.prompt if spec.tools else spec.prompt
        """What an agent must know to act."""
        self.first = first.text
        """What the environment shows first."""
        self._box = toolbox_for(spec.tools)
        self._step, self._clock, self._num_replies = step, clock, num_replies
        self._lock = asyncio.Lock()
        self._under_way: asyncio.Future[None] | None = None
        """A step that was started; the client that asked for it may have disconnected since."""
        self._last = Step(observation=first)
        self.steps: list[SessionStep] = []

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The environment's tools as OpenAI's API takes them; of one without any, `act` with an `action`."""
        return self._box.shown

    @property
    def ended(self) -> bool:
        return self._last.ended or len(self.steps) >= self.horizon

    async def step(self, action: str) -> Mapping[str, Any]:
        """Take an action; one after the end changes nothing. A step that the environment has started counts, even if
        the client disconnects before the reply."""
        async with self._lock:
            await self._settle()
            if not self.ended:
                self._under_way = asyncio.ensure_future(self._take(action))
                await self._settle()
            return self.show()

    async def _take(self, action: str) -> None:
        started, after = self._clock(), self._num_replies()
        self._last = await self._step(action)
        self.steps.append(SessionStep(after=after, action=action, step=self._last, seconds=self._clock() - started))

    async def settle(self) -> None:
        """Wait for the step that is under way; raise what it raised."""
        async with self._lock:
            await self._settle()

    async def _settle(self) -> None:
        if self._under_way is not None:
            await asyncio.shield(self._under_way)

    async def close(self) -> None:
        """Abandon a step that is still under way."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a tool of the environment; a call of one that it does not have is answered, and is not a step."""
        try:
            return await self.step(self._box.to_action(ToolCall(name, dict(arguments))))
        except MalformedCall as error:
            return {**self.show(), "observation": str(error), "status": Status.INVALID.value}

    def to_calls(self, action: str) -> tuple[ToolCall, ...]:
        """Write an action as calls of the environment's tools; raise `MalformedCall` where it is none."""
        return self._box.to_calls(action)

    def show(self) -> Mapping[str, Any]:
        observation = self._last.observation
        return {
            "observation": observation.text,
            "status": self._last.status.value,
            "done": self.ended,
            "valid_actions": None if observation.valid_actions is None else list(observation.valid_actions),
        }


class SessionRoutes:
    """The session over HTTP."""

    def __init__(self, session: HarnessSession) -> None:
        self._session = session

    def describe(self) -> Mapping[str, Any]:
        session = self._session
        return {**describe_task(session), **session.show()}

    async def step(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"action": TEXT}`, or `{"name": TOOL, "arguments": {...}}`."""
        if isinstance(action := data.get("action"), str):
            return await self._session.step(action)
        name, arguments = data.get("name"), data.get("arguments", {})
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                raise bad_request("'arguments' is not JSON", "arguments") from None
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise bad_request("expected an 'action', or the 'name' of a tool and its 'arguments'")
        return await self._session.call(name, arguments)


def describe_task(session: HarnessSession) -> dict[str, Any]:
    """Describe a task as a harness gets it."""
    return {
        "task": {"environment": session.task.environment, "id": session.task.id, "seed": session.task.seed},
        "prompt": session.prompt,
        "observation": session.first,
        "tools": list(session.tools),
        "turns": session.horizon,
    }
