"""Environments on the small package: guess a number, ask a tool, and some that are wrong on purpose."""

import json
import os

import httpx
from verifiers import Environment, Rubric, RubricGroup

__all__ = ["load_die", "load_environment", "load_judged", "load_nothing", "load_tool", "load_unscored"]


def _row(number):
    system = {"role": "system", "content": "Guess a number from 0 to 9."}
    return {"prompt": [system, {"role": "user", "content": f"Game {number}."}], "answer": str(number * 7 % 10)}


def _respond(reply, state):
    given = reply["content"].strip()
    if given == state["answer"]:
        state["right"] = True
        return None
    if not given.isdigit():
        return {"role": "user", "content": "That is no number."}
    return {"role": "user", "content": "higher" if int(given) < int(state["answer"]) else "lower"}


def _make_rubric():
    def right(state):
        return state.get("right", False)

    async def turns(turns):
        return turns

    return Rubric([right, turns], [1.0, 0.0])


def load_environment(games=5, held_out=3):
    print("this is not an answer")
    return Environment(
        train=[_row(number) for number in range(games)],
        test=[_row(number) for number in range(100, 100 + held_out)],
        respond=_respond,
        rubric=_make_rubric(),
        system_prompt="Guess a number from 0 to 9.",
    )


def load_tool():
    def respond(reply, state):
        if not reply["calls"]:
            return {"role": "user", "content": "Call the tool."}
        state["right"] = json.loads(reply["calls"][0].arguments) == {"number": 4}
        return None

    tool = {"name": "roll", "description": "Rolls.", "parameters": {"type": "object", "properties": {}}}
    return Environment(train=[_row(1)], test=[], respond=respond, rubric=_make_rubric(), tool_defs=[tool])


def load_die():
    def respond(reply, state):
        os._exit(3)

    return Environment(train=[_row(1)], test=[], respond=respond, rubric=_make_rubric())


def load_judged(trouble):
    """Its judge is down, or its own reward function has a bug."""

    async def ask(state):
        try:
            raise {"judge": httpx.ConnectError, "bug": ValueError}[trouble]("Connection refused")
        except (httpx.HTTPError, ValueError) as error:
            raise RuntimeError("Unexpected error when calling judge model") from error

    rubric = RubricGroup([_make_rubric(), Rubric([ask], [1.0])])
    return Environment(train=[_row(1)], test=[], respond=_respond, rubric=rubric)


def load_unscored():
    class Silent(Rubric):
        async def score_rollout(self, state):
            state["reward"] = None

    return Environment(train=[_row(1)], test=[], respond=_respond, rubric=Silent([], []))


def load_nothing():
    return "nothing"
