"""Environments of the verifiers ecosystem: their own rollout runs in a process of its own, and our agent is its model.

What the environment says between two replies is an observation, an action is the reply, and the rubric gives the score.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from ..errors import BadOption, EnvFault, EpisodeOver, UnknownTask
from ..options import read_key, read_options
from ..protocol import TOOL_NAME, Env, EnvSpec, Json, Observation, Runs, Step, ToolSchema, parse_numbered
from .folders import find_python
from .options import VerifiersOptions
from .process import Process, Shared, shared

__all__ = ["SPEC", "Verifiers", "create"]

SPEC = EnvSpec(
    name="verifiers",
    version="1",
    summary="environment packages of the verifiers ecosystem",
    splits=("train", "test"),
    runs=Runs.THREAD,  # calls block: nobody else should wait for them
    free_text=True,
)

_LOAD_S = 300.0
_OVER = "The episode is over."
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "HF_HOME", "SSL_CERT_FILE")
"""Our variables that the process gets: no keys, and nothing that changes how Python runs."""


def create(options: Mapping[str, Json]) -> Verifiers:
    return Verifiers(options)


class Verifiers(Env):
    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_options(VerifiersOptions, options)
        self.spec = replace(SPEC, score_range=(0.0, float(self._options.max_score)))
        self._shared: Shared | None = None
        self._process: Process | None = None
        self._facts: Mapping[str, Any] = {}
        self._episode: str | None = None

    # --- the process ---

    def _enter(self) -> Process:
        if self._process is not None and not self._process.alive:
            self.close()
        if self._process is None:
            entered = self._find_shared()
            self._process, facts = entered.enter()
            self._shared, self._facts = entered, facts
        return self._process

    def _find_shared(self) -> Shared:
        options = self._options
        load = {
            "name": options.environment,
            "args": dict(options.args),
            "max_steps": options.max_steps,
            "env": dict(options.env),
            "tasks": options.tasks,
            "held_out": options.held_out,
        }
        python = find_python(options.environment, os.environ)
        return shared(python, tuple(sorted(self._environ().items())), json.dumps(load, sort_keys=True), _LOAD_S)

    def _environ(self) -> dict[str, str]:
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return {**passed, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1", **self._judge()}

    def _judge(self) -> dict[str, str]:
        """Variables that the clients made by judged rubrics read themselves: OpenAI's, and those of the 0.4 line's
        judges."""
        judge = self._options.judge
        if not judge:
            return {}
        variable = judge.get("key_variable", "")
        key = read_key(variable, os.environ)
        if variable and not key:
            raise BadOption(f"the judge's key is to be in the variable {variable}, which is not set")
        url, key = judge["url"], key or "none"
        return {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key, "PRIME_INFERENCE_URL": url, "PRIME_API_KEY": key}

    def _ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        assert self._process is not None
        return self._process.ask(what, self._options.timeout_s, **arguments)

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        """The environment's own, in its own order."""
        self.check_split(split)
        self._enter()
        return tuple(f"{split}-{number}" for number in range(self._facts["tasks"][split]))

    def _find(self, task: str) -> tuple[str, int]:
        self._enter()
        split, number = parse_numbered(task) or ("", 0)
        if number >= self._facts["tasks"].get(split, 0):
            raise UnknownTask(f"'{self._options.environment}' has no task '{task[:60]}'")
        return split, number

    def describe(self) -> EnvSpec:
        """The spec with the environment's system prompt, tools and limit of turns."""
        self._enter()
        tools = tuple(ToolSchema(**tool) for tool in self._facts["tools"])
        usable = tools if all(TOOL_NAME.fullmatch(tool.name) for tool in tools) else ()
        prompt, turns = self._facts["prompt"], self._facts["max_turns"]
        return replace(self.spec, prompt=prompt, tool_prompt=prompt, max_turns=turns, tools=usable)

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        """The seed changes nothing: randomness within an episode is the environment's own."""
        split, number = self._find(task)
        self.end()
        self._episode = uuid.uuid4().hex
        opened = self._ask("open", episode=self._episode, split=split, number=number)
        if "reward" in opened:
            self.end()
            raise EnvFault(f"task '{task}' was over before the agent's first turn")
        return Observation(text=opened["text"])

    def step(self, action: str) -> Step:
        if self._episode is None:
            raise EpisodeOver("verifiers has no episode under way: reset it first")
        answer = self._ask("act", episode=self._episode, action=action)
        if "reward" not in answer:
            return Step(observation=Observation(text=answer["text"]))
        self.end()
        info: dict[str, Json] = {"metrics": answer["metrics"], "stopped_by": answer["why"]}
        text = f"{answer['text']}\n{_OVER}".strip()
        reward = self._check(answer["reward"])
        return Step(observation=Observation(text=text), reward=reward, terminated=True, info=info)

    def _check(self, reward: float) -> float:
        if not 0 <= reward <= self._options.max_score:
            raise EnvFault(f"the rubric gave {reward:g}, not 0 to {self._options.max_score:g}: set option 'max_score'")
        return reward

    def end(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None and self._process is not None and self._process.alive:
            self._ask("end", episode=episode)

    def close(self) -> None:
        entered, self._shared, self._process, self._episode = self._shared, None, None, None
        if entered is not None:
            entered.leave()

    # --- demonstrations ---

    def noise_action(self, rng: Random) -> str | None:
        return f"My answer is {rng.randrange(100)}."

    def corpus(self) -> Iterator[str]:
        """The prompt, and what the first tasks of training say."""
        yield self.describe().prompt
        for task in self.tasks("train")[:200]:
            yield self.reset(task, 0).text
            self.end()
