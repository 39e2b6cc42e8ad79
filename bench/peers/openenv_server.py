"""A server as OpenEnv's users write one, with its default capacity of one session: `openenv.sh` starts it."""

from __future__ import annotations

import re
import socket
import sys
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    text: str


class Answer(Observation):
    text: str = ""


class Guessing(Environment[Guess, Answer, State]):
    def __init__(self) -> None:
        super().__init__()
        self._number = 0
        self._steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **about: Any) -> Answer:
        self._number, self._steps = (seed or 0) % 9 + 1, 0
        return Answer(text="What is the number, from 1 to 9?")

    def step(self, action: Guess, timeout_s: float | None = None, **about: Any) -> Answer:
        self._steps += 1
        said = re.search(r"\d+", action.text)
        guess = int(said[0]) if said and len(said[0]) < 9 else 0
        if guess == self._number:
            return Answer(text="Right.", done=True, reward=1.0)
        return Answer(text="It is higher." if guess < self._number else "It is lower.", reward=0.0)

    @property
    def state(self) -> State:
        return State(episode_id="", step_count=self._steps)


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    server = uvicorn.Server(uvicorn.Config(create_app(Guessing, Guess, Answer, env_name="guessing"), log_level="error"))
    sys.exit(server.run(sockets=[listener]))
