"""Moves that a game allows now: those that its messages name or its kind suggests, each tried on a copy of the game."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from itertools import product
from typing import Any

from .dice import Dice
from .games import Table

__all__ = ["is_refused", "legal_moves", "try_move"]

_NAMED = re.compile(r"\[[^\[\]\n]{1,30}\]")
_MOST = 200
"""Moves tried in one turn."""


def _numbers(num: Callable[[Any], int]) -> Callable[[Any], Iterable[str]]:
    return lambda game: (f"[{number}]" for number in range(num(game)))


def _pairs(rows: Callable[[Any], Iterable[Any]], columns: Callable[[Any], Iterable[Any]]) -> Callable[[Any], list[str]]:
    return lambda game: [f"[{one} {other}]" for one, other in product(rows(game), columns(game))]


def _cells(num: int) -> Callable[[Any], Iterable[str]]:
    return _pairs(lambda game: range(num), lambda game: range(num))


def _squares(game: Any) -> Iterable[str]:
    """Moves of a pawn on a board of lettered columns: one row up or down, straight or diagonal."""
    size = game.board_size
    for column, row, across, along in product(range(size), range(1, size + 1), (-1, 0, 1), (-1, 1)):
        if 0 <= column + across < size and 1 <= row + along <= size:
            yield f"[{chr(97 + column)}{row}{chr(97 + column + across)}{row + along}]"


_SUGGESTED: Mapping[str, Callable[[Any], Iterable[str]]] = {
    "BanditEnv": lambda game: (f"[{button}]" for button in game.buttons),
    "BattleshipEnv": lambda game: (f"[{chr(65 + row)}{column}]" for row, column in product(range(10), range(10))),
    "BreakthroughEnv": _squares,
    "BriscolaEnv": lambda game: (f"[play {card}]" for card in range(1, 4)),
    "ChopsticksEnv": lambda game: (f"[attack {mine} {yours}]" for mine, yours in product(range(2), range(2))),
    "ConnectFourEnv": lambda game: (f"[col {column}]" for column in range(game.num_cols)),
    "GermanWhistEnv": lambda game: (f"[play {card}]" for card in range(1, 14)),
    "GolfEnv": lambda game: (*("[draw]", "[take]", "[discard]", "[knock]"), *(f"[swap {at}]" for at in range(9))),
    "GuessTheNumberEnv": _numbers(lambda game: int(game.max_number) + 1),
    "LightsOutEnv": _cells(7),
    "MinesweeperEnv": _cells(10),
    "NimEnv": _pairs(lambda game: range(len(game.initial_piles)), lambda game: range(1, max(game.initial_piles) + 1)),
    "QuantumTicTacToeEnv": lambda game: (f"[{one},{other}]" for one, other in product(range(9), range(9))),
    "TowerOfHanoiEnv": _pairs(lambda game: "ABC", lambda game: "ABC"),
    "IteratedTwoThirdsAverageEnv": _numbers(lambda game: 101),
}
"""By the class of the game, for those whose messages name no moves, or too few."""


def legal_moves(table: Table, said: str) -> tuple[str, ...]:
    """Moves allowed now, in the order of the alphabet; none where they cannot be found."""
    named = set(_NAMED.findall(said))
    suggested = _SUGGESTED.get(type(table.game).__name__, lambda game: ())(table.game)
    tried = sorted({*suggested, *sorted(named)[-_MOST:]})
    return tuple(move for move in tried if try_move(table, move) is not None)


def try_move(table: Table, move: str) -> Table | None:
    """A copy of the game after a move, with randomness that is not the game's; None if the move is refused."""
    outer = deepcopy(table.outer)
    game = outer
    while hasattr(game, "env"):
        game = game.env
    copy = Table(outer=outer, game=game)
    player = copy.state.current_player_id
    try:
        with Dice("trial").thrown():
            outer.step(move)
    except Exception:  # what makes a game fail is not a move
        return None
    return None if is_refused(copy.state, player) else copy


def is_refused(state: Any, player: int) -> bool:
    """Whether the player's last action was not a move."""
    if state.game_info.get(player, {}).get("invalid_move"):
        return True
    return not state.done and state.current_player_id == player and getattr(state, "error_count", 0) > 0
