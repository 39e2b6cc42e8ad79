"""Who plays the other seats: random moves, a search, a model at an OpenAI-compatible endpoint, or one of the run's
own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

import httpx

from ..errors import BadOption, EnvFault, FaultKind
from ..options import read_key
from ..protocol import SeatModel
from .games import Table
from .moves import legal_moves, try_move
from .options import OpponentOption
from .positions import POSITIONS, best_moves

__all__ = ["PROGRAMS", "Opponent", "lookahead", "make_opponent", "name_of", "noise"]

_ANSWER_S = 60.0
_LONGEST_MOVE = 2000
_ANSWER_TOKENS = 256


Opponent: TypeAlias = Callable[[Table, str, Random], str]
"""Gives the move of the player whose turn it is, from the game, what that player has been told, and dice."""


def make_opponent(option: OpponentOption) -> Opponent | SeatModel:
    """Make what gives the moves; for a model of the run only its name, as the run asks it."""
    if isinstance(option, str):
        return PROGRAMS[option] if option in PROGRAMS else SeatModel(option)
    return Model(url=option["url"], name=option["model"], key=_read_key(option.get("key_variable")))


def _read_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = read_key(variable, os.environ)
    if not key:
        raise BadOption(f"textarena option 'opponent': the environment variable {variable} is not set")
    return key


def name_of(option: OpponentOption) -> str:
    return option if isinstance(option, str) else str(option["model"])


def noise(table: Table, said: str, rng: Random) -> str:
    """A random move."""
    moves = legal_moves(table, said)
    if not moves:
        raise EnvFault(f"{type(table.game).__name__}: no move could be found for an opponent")
    return rng.choice(moves)


def lookahead(table: Table, said: str, rng: Random) -> str:
    """One of the best moves, by a search of a small game; elsewhere one that wins at once, if there is any."""
    player, read = table.state.current_player_id, POSITIONS.get(type(table.game).__name__)
    if read is not None:
        return rng.choice(best_moves(read(table.game, player)))
    moves = legal_moves(table, said)
    winning = [move for move in moves if _wins(table, move, player)]
    return rng.choice(winning) if winning else noise(table, said, rng)


def _wins(table: Table, move: str, player: int) -> bool:
    after = try_move(table, move)
    rewards: Mapping[int, float] = (after.state.rewards or {}) if after is not None else {}
    return rewards.get(player, 0) > 0


PROGRAMS: Mapping[str, Opponent] = {"random": noise, "lookahead": lookahead}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model that is asked for each move, such as an earlier checkpoint that `agym serve` offers."""

    url: str
    """Base of the endpoint, which ends in /v1."""
    name: str
    key: str | None = field(default=None, repr=False)
    """If the endpoint asks for one."""

    def __call__(self, table: Table, said: str, rng: Random) -> str:
        asked = {
            "model": self.name,
            "messages": [{"role": "user", "content": said}],
            "temperature": 0,
            "seed": rng.getrandbits(31),
            "max_tokens": _ANSWER_TOKENS,
        }
        try:
            answer = httpx.post(
                f"{self.url.rstrip('/')}/chat/completions", json=asked, headers=self._headers(), timeout=_ANSWER_S
            )
            answer.raise_for_status()
            return self._read_move(answer.json())
        except httpx.HTTPError as error:
            # its text may hold what was sent
            what = f"status {answer.status_code}" if isinstance(error, httpx.HTTPStatusError) else type(error).__name__
            raise EnvFault(f"the opponent at {self.url}: {what}", kind=FaultKind.UNREACHABLE) from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise EnvFault(f"the opponent at {self.url} gave no answer", kind=FaultKind.GARBAGE) from error

    def _headers(self) -> dict[str, str]:
        return {} if self.key is None else {"authorization": f"Bearer {self.key}"}

    def _read_move(self, answer: Mapping[str, Any]) -> str:
        """Read the move from a whole answer: a missing one would be a wrong move, and a win for the agent."""
        choice = answer["choices"][0]
        if choice.get("finish_reason") == "length":
            raise EnvFault(
                f"the opponent at {self.url} did not end its answer within {_ANSWER_TOKENS} tokens: use a model that "
                "answers at once",
                kind=FaultKind.GARBAGE,
            )
        move = choice["message"]["content"]
        if not isinstance(move, str) or not move.strip():
            raise ValueError("an answer without text")
        return move[:_LONGEST_MOVE]
