"""Environments on the small package: guess a number, ask a tool, and some that are wrong on purpose."""

import json
import os

from verifiers import Environment

__all__ = ["load_die", "load_environment", "load_nothing", "load_tool"]


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


def _score(state):
    return {"right": float(state.get("right", False)), "turns": state["turns"]}


def load_environment(games=5, held_out=3):
    print("this is not an answer")
    return Environment(
        train=[_row(number) for number in range(games)],
        test=[_row(number) for number in range(100, 100 + held_out)],
        respond=_respond,
        score=_score,
        system_prompt="Guess a number from 0 to 9.",
    )


def load_tool():
    def respond(reply, state):
        if not reply["calls"]:
            return {"role": "user", "content": "Call the tool."}
        state["right"] = json.loads(reply["calls"][0].arguments) == {"number": 4}
        return None

    tool = {"name": "roll", "description": "Rolls.", "parameters": {"type": "object", "properties": {}}}
    return Environment(train=[_row(1)], test=[], respond=respond, score=_score, tool_defs=[tool])


def load_die():
    def respond(reply, state):
        os._exit(3)

    return Environment(train=[_row(1)], test=[], respond=respond, score=_score)


def load_nothing():
    return "nothing"
