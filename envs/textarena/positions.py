"""Small games as positions that can be searched to their end, or some moves ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

__all__ = ["POSITIONS", "Position", "best_moves"]

_AHEAD = 4
"""Plies that are searched where a game is too long for its end."""
_LATER = 0.99
"""What a win one ply later is worth: the sooner the better."""


class Position(Protocol):
    """A position of a game for two, seen by the player to move; equal ones are equal."""

    @property
    def moves(self) -> tuple[str, ...]: ...

    @property
    def lost(self) -> bool:
        """Whether the last move has won."""

    def play(self, move: str) -> Position: ...


def best_moves(position: Position) -> tuple[str, ...]:
    """Every move that is as good as any."""
    worth = {move: -_value(position.play(move), _AHEAD, -1.0, 1.0) for move in position.moves}
    most = max(worth.values(), default=0.0)
    return tuple(move for move, value in worth.items() if value == most)


def _value(position: Position, ahead: int, low: float, high: float) -> float:
    """Value of a position for the player to move: from -1, lost, to 1."""
    if isinstance(position, Nim | TicTacToe):
        return _whole_value(position)
    if position.lost:
        return -1.0
    if not ahead or not position.moves:
        return 0.0
    best = -1.0
    for move in position.moves:
        best = max(best, -_LATER * _value(position.play(move), ahead - 1, -high, -max(low, best)))
        if best >= high:
            break
    return best


@cache
def _whole_value(position: Nim | TicTacToe) -> float:
    if position.lost:
        return -1.0
    return max((-_LATER * _whole_value(position.play(move)) for move in position.moves), default=0.0)


_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


@dataclass(frozen=True, slots=True)
class TicTacToe:
    cells: str
    """Nine letters: `+` of the player to move, `-` of the one that moved last, or a space."""

    @property
    def moves(self) -> tuple[str, ...]:
        return tuple(f"[{at}]" for at, cell in enumerate(self.cells) if cell == " ")

    @property
    def lost(self) -> bool:
        return any(self.cells[a] == self.cells[b] == self.cells[c] == "-" for a, b, c in _LINES)

    def play(self, move: str) -> TicTacToe:
        at = int(move[1:-1])
        turned = self.cells.translate({43: "-", 45: "+"})
        return TicTacToe(turned[:at] + "-" + turned[at + 1 :])


@dataclass(frozen=True, slots=True)
class Nim:
    piles: tuple[int, ...]

    @property
    def moves(self) -> tuple[str, ...]:
        return tuple(f"[{at} {taken}]" for at, pile in enumerate(self.piles) for taken in range(1, pile + 1))

    @property
    def lost(self) -> bool:
        return not any(self.piles)

    def play(self, move: str) -> Nim:
        at, taken = map(int, move[1:-1].split())
        return Nim(tuple(pile - taken * (number == at) for number, pile in enumerate(self.piles)))


@dataclass(frozen=True, slots=True)
class ConnectFour:
    columns: tuple[str, ...]
    """From the bottom: `+` of the player to move, `-` of the one that moved last."""
    height: int
    last: int | None = None
    """Column of the last move."""

    @property
    def moves(self) -> tuple[str, ...]:
        if self.lost:
            return ()
        return tuple(f"[col {at}]" for at, column in enumerate(self.columns) if len(column) < self.height)

    @property
    def lost(self) -> bool:
        if self.last is None:
            return False
        row = len(self.columns[self.last]) - 1
        return any(
            1 + self._run(row, across, up) + self._run(row, -across, -up) >= 4
            for across, up in ((1, 0), (0, 1), (1, 1), (1, -1))
        )

    def _run(self, row: int, across: int, up: int) -> int:
        """Discs of the last mover in one direction from the last one."""
        assert self.last is not None
        num = 0
        while self._at(self.last + (num + 1) * across, row + (num + 1) * up) == "-":
            num += 1
        return num

    def _at(self, column: int, row: int) -> str:
        if not 0 <= column < len(self.columns) or not 0 <= row < len(self.columns[column]):
            return ""
        return self.columns[column][row]

    def play(self, move: str) -> ConnectFour:
        at = int(move.removeprefix("[col ")[:-1])
        turned = [column.translate({43: "-", 45: "+"}) for column in self.columns]
        turned[at] += "-"
        return ConnectFour(tuple(turned), self.height, at)


def _read_tictactoe(game: Any, player: int) -> TicTacToe:
    mine = "X" if player == 1 else "O"
    cells = [cell for row in game.state.game_state["board"] for cell in row]
    return TicTacToe("".join(" " if not cell else "+" if cell == mine else "-" for cell in cells))


def _read_nim(game: Any, player: int) -> Nim:
    return Nim(tuple(game.state.game_state["piles"]))


def _read_connect_four(game: Any, player: int) -> ConnectFour:
    mine, board = "X" if player == 0 else "O", game.state.game_state["board"]
    columns = ([row[at] for row in reversed(board) if row[at] != "."] for at in range(game.num_cols))
    marked = tuple("".join("+" if disc == mine else "-" for disc in column) for column in columns)
    return ConnectFour(marked, game.num_rows)


POSITIONS: Mapping[str, Callable[[Any, int], Position]] = {
    "ConnectFourEnv": _read_connect_four,
    "NimEnv": _read_nim,
    "TicTacToeEnv": _read_tictactoe,
}
"""By the class of the game."""
