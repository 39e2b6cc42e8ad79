"""The 0.4 line of verifiers: a taskset with an environment around it, whose seat is played through a harness of ours.

The environment runs the episode. Its model's endpoint and its harness are in this process.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from itertools import islice
from typing import Any

from .endpoint import Endpoint, write_reply
from .episode import Episode
from .messages import Refused, field, join_texts, number_of, since_reply, text_of

__all__ = ["CurrentLine"]


class CurrentLine:
    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._endpoint = Endpoint()
        self._environment: Any = None
        self._tasks: dict[str, list[Any]] = {"train": [], "test": []}
        self._system: str | None = None

    async def load(self, name: str, args: dict[str, Any], max_steps: int, **settings: Any) -> dict[str, Any]:
        """Load it, and begin a first episode to see its system prompt and its tools."""
        import verifiers.v1 as vf

        config, seat = _configure(name, args, settings["env"], max_steps)
        try:
            self._environment = vf.load_environment(config)
        except (TypeError, ValueError) as error:
            raise Refused(f"'{name}' does not load with these args: {error}") from error
        self._tasks = _list_tasks(name, self._environment.taskset, args, settings["tasks"], settings["held_out"])
        self._stack.push_async_callback(self._endpoint.close)
        await self._endpoint.start()
        await self._stack.enter_async_context(self._environment.serving())
        tools = await self._look()
        return {
            "tasks": {split: len(tasks) for split, tasks in self._tasks.items()},
            "prompt": self._system or "",
            "max_turns": getattr(config, seat).max_turns,
            "tools": tools,
        }

    async def _look(self) -> list[dict[str, Any]]:
        split = next((split for split, tasks in self._tasks.items() if tasks), None)
        if split is None:
            raise Refused("it has no tasks")
        rollout = self.open(split, 0)
        rollout.start()
        event = await rollout.event()
        await rollout.end()
        if "fault" in event:
            raise Refused(f"its first task cannot be played here: {event['fault']}")
        first = next((message for message in rollout.asked.get("messages", ())), None)
        self._system = text_of(first) if field(first, "role") == "system" else None
        return [tool["function"] for tool in rollout.asked.get("tools") or ()]

    def open(self, split: str, number: int) -> _Rollout:
        return _Rollout(self._environment, self._tasks[split][number], self._endpoint, self._system)

    async def close(self) -> None:
        await self._stack.aclose()


def _configure(name: str, args: Mapping[str, Any], env: Mapping[str, Any], max_steps: int) -> tuple[Any, str]:
    """Its configuration with our harness at the one seat that has no model of its own, and that seat's name."""
    import verifiers.v1 as vf

    if ":" in name:
        raise Refused(f"'{name}': the verifiers installed there loads a package by its name: leave out the function")
    try:
        config = vf.resolve_env_config({**env, "taskset": {**args, "id": name}})
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise Refused(_explain(name, error)) from error
    free = [seat for seat, agent in config if isinstance(agent, vf.AgentConfig) and agent.model is None]
    if len(free) != 1:
        raise Refused(
            f"'{name}' has {len(free)} seats for a model ({', '.join(free)}), of which one can be the agent's: give the"
            " others a 'model' and a 'client' in option 'env'"
        )
    return config.model_copy(update={free[0]: _seat(getattr(config, free[0]), max_steps)}), free[0]


def _seat(agent: Any, max_steps: int) -> Any:
    """A seat that our agent plays, in a folder of its own on this machine unless the options say where."""
    import verifiers.v1 as vf

    from .policy import HARNESS

    changes = {"harness": vf.HarnessConfig(id=HARNESS), "max_turns": agent.max_turns or max_steps}
    if "runtime" not in agent.model_fields_set:
        changes["runtime"] = vf.SubprocessConfig()
    return agent.model_copy(update=changes)


def _explain(name: str, error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"'{name}' cannot be imported there: {error}"
    if isinstance(error, ValueError):
        return f"'{name}' does not load with these args: {error}"
    return (
        f"'{name}' is no taskset of the verifiers installed there ({error}); if it has 'load_environment', install it"
        " again with 'verifiers<0.2' among its packages"
    )


def _list_tasks(name: str, taskset: Any, args: Mapping[str, Any], most: int, held_out: int) -> dict[str, list[Any]]:
    """By its own splits where its `split` can be chosen; else the first are for training, and the last are held out."""
    import verifiers.v1 as vf

    kind = type(taskset.config)
    if "split" in kind.model_fields and "split" not in args:
        found: dict[str, list[Any]] = {}
        for split in ("train", "test"):
            try:
                config = kind.model_validate({**args, "id": name, "split": split})
            except ValueError:  # it has no such split
                found[split] = []
            else:
                found[split] = list(islice(vf.load_taskset(config), most))
        return found
    tasks = list(islice(taskset, most + held_out))
    border = max(0, len(tasks) - held_out)
    return {"train": tasks[:border], "test": tasks[border:]}


class _Rollout(Episode):
    def __init__(self, environment: Any, task: Any, endpoint: Endpoint, system: str | None) -> None:
        super().__init__()
        self._environment, self._task_played, self._endpoint, self._system = environment, task, endpoint, system
        self._model = f"policy-{uuid.uuid4().hex}"
        self._turns = 0
        self.asked: Mapping[str, Any] = {}
        """The last request."""

    async def _answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self.asked = asked
        new = since_reply(asked["messages"]) if self._turns else asked["messages"]
        action = await self.reply_to(join_texts(new, self._system))
        self._turns += 1
        return write_reply(action, asked, self._turns)

    async def play(self) -> dict[str, Any]:
        import verifiers.v1 as vf

        client = vf.EvalClientConfig(base_url=self._endpoint.url, api_key_var="AGYM_NO_KEY")
        self._endpoint.enter(self._model, self._answer)
        try:
            episode = await self._environment.run_episode(
                self._task_played, vf.ModelContext(model=self._model, client=client)
            )
        finally:
            self._endpoint.leave(self._model)
        if not episode.ok:
            raise RuntimeError(_find_error(episode))
        return _describe([trace for trace in episode.traces if trace.agent.config.model == self._model])


def _find_error(episode: Any) -> str:
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    return f"{errors[-1].type}: {errors[-1].message}" if errors else "the episode failed, and did not say why"


def _describe(traces: list[Any]) -> dict[str, Any]:
    """The mean over the agent's runs in the episode, of which there is usually one."""
    parts: dict[str, list[float]] = {}
    for trace in traces:
        scores = {name: field(reward, "score") for name, reward in trace.rewards.items()}
        for name, value in {**trace.metrics, **scores}.items():
            number = number_of(value)
            if number is not None:
                parts.setdefault(name, []).append(number)
    return {
        "text": join_texts(since_reply(traces[-1].messages)),
        "reward": sum(float(trace.reward) for trace in traces) / len(traces),
        "metrics": {name: sum(values) / len(values) for name, values in parts.items()},
        "why": str(traces[-1].stop_condition or ""),
    }
