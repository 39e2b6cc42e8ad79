"""TextArena: text games by name, for one player or several; the agent has one seat, opponents have the others.

A task is a seat and a seed. The score is the outcome for the agent's seat, scaled to 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from ..errors import BadOption, EnvFault, EpisodeOver, UnknownTask
from ..options import read_options
from ..protocol import Env, EnvSpec, Json, Observation, Seat, SeatModel, Status, Step, parse_numbered
from .dice import Dice
from .games import MOVELESS, Table, family_of, find_players, set_up
from .moves import is_refused, legal_moves
from .opponents import PROGRAMS, lookahead, make_opponent, name_of
from .options import TextArenaOptions
from .positions import POSITIONS

__all__ = ["SPEC", "TextArena", "create"]

FIRST_SEED: Mapping[str, int] = {"train": 0, "test": 1_000_000}

SPEC = EnvSpec(
    name="textarena", version="1", summary="TextArena's games, alone or against opponents", splits=tuple(FIRST_SEED)
)

_LONGEST_ACTION = 1000
_MOST_MOVES = 1000
"""Of opponents between two of the agent's."""
_OVER = "The game is over."
_SHOWN: Mapping[str, frozenset[str]] = {
    "all": frozenset(
        {"PROMPT", "PLAYER_ACTION", "GAME_ACTION_DESCRIPTION", "GAME_MESSAGE", "GAME_BOARD", "GAME_ADMIN"}
    ),
    "board": frozenset({"GAME_BOARD", "GAME_ADMIN"}),
}
"""Kinds of messages that are told, by the option `show`."""


def create(options: Mapping[str, Json]) -> TextArena:
    return TextArena(options)


class TextArena(Env):
    def __init__(self, options: Mapping[str, Json]) -> None:
        self._options = read_options(TextArenaOptions, options)
        self._opponents = tuple(map(make_opponent, self._options.opponent))
        self._players = find_players(self._options.game, self._options.kwargs, self._options.players)
        self._check_opponents()
        self.spec = replace(
            SPEC,
            prompt=self._prompt(),
            max_turns=self._options.max_steps,
            models=tuple(dict.fromkeys(each for each in self._opponents if isinstance(each, SeatModel))),
        )
        self._table: Table | None = None
        self._dice, self._rng = Dice(""), Random(0)
        self._opponent = self._opponents[0]
        self._seat = 0
        self._said: dict[int, str] = {}
        """All that each player has been told."""
        self._left = 0
        self._moves = 0
        """Of opponents since the agent's last."""

    def _check_opponents(self) -> None:
        game, names = self._options.game, set(map(name_of, self._options.opponent))
        if self._players > 1 and names & PROGRAMS.keys() and family_of(game) in MOVELESS:
            raise BadOption(
                f"the moves of '{game}' cannot be listed: give the option 'opponent' a model, policy or "
                "{url: ..., model: ...}"
            )

    def _prompt(self) -> str:
        game = self._options.game.partition("-v")[0]
        return f"You play a game of {game}. Each turn, give one move, in brackets as the game asks for it."

    # --- tasks ---

    def tasks(self, split: str) -> tuple[str, ...]:
        """Seats take turns, so that the first tasks have all of them."""
        self.check_split(split)
        first = FIRST_SEED[split]
        seeds = range(first, first + self._options.seeds)
        return tuple(f"seat{seat}-{seed}" for seed in seeds for seat in range(self._players))

    def difficulty(self, task: str) -> str:
        """The seat; where there are several opponents, which of them."""
        seat, number = self._find(task)
        names = tuple(map(name_of, self._options.opponent))
        return names[number % len(names)] if len(set(names)) > 1 and self._players > 1 else f"seat{seat}"

    def _find(self, task: str) -> tuple[int, int]:
        """Seat and seed."""
        found = parse_numbered(task)
        seats = {f"seat{seat}": seat for seat in range(self._players)}
        if found is None or found[0] not in seats:
            raise UnknownTask(f"textarena has no task '{task[:60]}': expected one such as seat0-17")
        return seats[found[0]], found[1]

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        """The task decides everything but the moves: who sits where, against whom, and all randomness."""
        self._seat, number = self._find(task)
        self._dice, self._rng = Dice(f"{task} game"), Random(f"{task} opponent")
        self._opponent = self._opponents[number % len(self._opponents)]
        self._table = set_up(self._options.game, self._options.kwargs, self._players, number, self._dice)
        self._said, self._left, self._moves = {}, self._options.max_steps, 0
        self._play_programs(self._table)
        if self._table.state.done:
            raise EnvFault(f"'{self._options.game}' was over before the agent's first move")
        return self._observe(self._table)

    def step(self, action: str) -> Step:
        """Move for the player whose turn it is: the agent, or one played by a model of the run."""
        if self._table is None:
            raise EpisodeOver("textarena has no episode under way: reset it first")
        table = self._table
        player = table.state.current_player_id
        self._left -= player == self._seat
        self._move(table, player, action[:_LONGEST_ACTION])
        is_wrong = player == self._seat and is_refused(table.state, self._seat)
        self._play_programs(table)
        over = bool(table.state.done)
        truncated = not over and not self._left and table.state.current_player_id == self._seat
        if over or truncated:
            self._table = None
        return Step(
            observation=self._observe(table),
            reward=self._outcome(table) if over else 0.0,
            terminated=over,
            truncated=truncated,
            status=Status.INVALID if is_wrong else Status.OK,
            info={"outcome": float(table.state.rewards.get(self._seat, 0))} if over else {},
        )

    def _play_programs(self, table: Table) -> None:
        """Let opponents move until it is the turn of the agent, or of one that the run plays."""
        while not table.state.done and (player := table.state.current_player_id) != self._seat:
            if isinstance(self._opponent, SeatModel):
                return
            self._listen(table, player)
            self._move(table, player, self._opponent(table, self._said[player], self._rng))

    def _move(self, table: Table, player: int, action: str) -> None:
        self._moves = 0 if player == self._seat else self._moves + 1
        if self._moves > _MOST_MOVES:
            raise EnvFault(f"the agent had no turn within {_MOST_MOVES} moves of its opponents")
        with self._dice.thrown():
            table.outer.step(action)

    def _listen(self, table: Table, player: int) -> list[tuple[int, str, Any]]:
        """Take what a player has been told since it was last asked."""
        messages: list[tuple[int, str, Any]] = table.state.observations.get(player, [])
        table.state.observations[player] = []
        self._said[player] = "\n".join((self._said.get(player, ""), *(text for _, text, _ in messages)))
        return messages

    def _hear(self, table: Table, player: int) -> str:
        """What a player is shown of that."""
        roles, shown = table.state.role_mapping, _SHOWN[self._options.show]
        return "\n".join(
            text.strip() if sender < 0 else f"{roles.get(sender, f'Player {sender}')}: {text.strip()}"
            for sender, text, kind in _latest_board(self._listen(table, player))
            if kind.name in shown and sender != player
        )

    def _reason(self, table: Table) -> str:
        reason = table.state.game_info.get(self._seat, {}).get("reason") if table.state.game_info else None
        return f"{_OVER} {reason}" if reason else _OVER

    def _outcome(self, table: Table) -> float:
        """Reward of the seat: alone from 0 to 1, against others from -1, lost, to 1, won."""
        earned = float((table.state.rewards or {}).get(self._seat, 0))
        return min(1.0, max(0.0, earned if self._players == 1 else (earned + 1) / 2))

    def _observe(self, table: Table) -> Observation:
        """What the player whose turn it is sees; at the end, the agent."""
        if table.state.done:
            return Observation(text=f"{self._hear(table, self._seat)}\n{self._reason(table)}".strip())
        player, read = table.state.current_player_id, POSITIONS.get(type(table.game).__name__)
        return Observation(
            text=self._hear(table, player),
            valid_actions=read(table.game, player).moves if read is not None else None,
            seat=self._seat_of(player),
        )

    def _seat_of(self, player: int) -> Seat | None:
        if player == self._seat:
            return None
        assert isinstance(self._opponent, SeatModel), "programs have moved by now"
        return Seat(name=f"player {player}", model=self._opponent)

    def end(self) -> None:
        self._table = None

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        """Moves of a search to the end of a small game, where they win; none against a model of the run."""
        self.reset(task, seed)
        if not self._knows_best() or isinstance(self._opponent, SeatModel):
            return None
        moves: list[str] = []
        rng, score = Random(f"{task} expert"), 0.0
        while self._table is not None:
            moves.append(lookahead(self._table, self._said[self._seat], rng))
            score = self.step(moves[-1]).reward
        return tuple(moves) if score == 1.0 else None

    def _knows_best(self) -> bool:
        return self._table is not None and type(self._table.game).__name__ in POSITIONS

    def noise_action(self, rng: Random) -> str | None:
        if self._table is None:
            return None
        moves = legal_moves(self._table, self._said[self._table.state.current_player_id])
        return rng.choice(moves) if moves else None

    def corpus(self) -> Iterator[str]:
        """The prompt, and what is said in some random games, with an invalid move."""
        yield self.spec.prompt
        for task, rng in ((task, Random(task)) for task in self.tasks("train")[:20]):
            yield self.reset(task, 0).text
            while self._table is not None:
                move = self.noise_action(rng) if rng.random() < 0.9 else None
                yield move or "[no move]"
                yield self.step(move or "[no move]").observation.text


def _latest_board(messages: list[tuple[int, str, Any]]) -> list[tuple[int, str, Any]]:
    """Of several pictures of the board, only the newest is shown."""
    boards = [at for at, (_, _, kind) in enumerate(messages) if kind.name == "GAME_BOARD"]
    return [message for at, message in enumerate(messages) if at not in boards[:-1]]
