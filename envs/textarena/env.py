"""TextArena: games of text by name, for one player or several; the agent has one seat, opponents have the others.

A task is a seat and a seed. The score is the outcome for the agent's seat, scaled to 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from ..errors import BadOption, EnvFault, EpisodeOver, UnknownTask
from ..options import read_options
from ..protocol import Env, EnvSpec, Json, Observation, Status, Step, parse_numbered
from .dice import Dice
from .games import MOVELESS, Table, family_of, find_players, set_up
from .moves import is_refused, legal_moves
from .opponents import lookahead, make_opponent
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
        self.spec = replace(SPEC, prompt=self._prompt(), max_turns=self._options.max_steps)
        self._table: Table | None = None
        self._dice, self._rng = Dice(""), Random(0)
        self._opponent = self._opponents[0]
        self._seat = 0
        self._said: dict[int, str] = {}
        """All that each player has been told."""
        self._left = 0

    def _check_opponents(self) -> None:
        game, by_name = self._options.game, any(isinstance(each, str) for each in self._options.opponent)
        if self._players > 1 and by_name and family_of(game) in MOVELESS:
            raise BadOption(
                f"the moves of '{game}' cannot be listed: give the option 'opponent' a model, {{url: ..., model: ...}}"
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
        return f"seat{self._find(task)[0]}"

    def _find(self, task: str) -> tuple[int, int]:
        """Seat and seed."""
        found = parse_numbered(task)
        seats = {f"seat{seat}": seat for seat in range(self._players)}
        if found is None or found[0] not in seats:
            raise UnknownTask(f"textarena has no task '{task[:60]}': expected one such as seat0-17")
        return seats[found[0]], found[1]

    # --- playing ---

    def reset(self, task: str, seed: int) -> Observation:
        """The task decides everything: who sits where, the game's chance and the opponents'."""
        self._seat, number = self._find(task)
        self._dice, self._rng = Dice(f"{task} game"), Random(f"{task} opponent")
        self._opponent = self._opponents[number % len(self._opponents)]
        self._table = set_up(self._options.game, self._options.kwargs, self._players, number, self._dice)
        self._said, self._left = {}, self._options.max_steps
        told = self._until_my_turn(self._table)
        if self._table.state.done:
            raise EnvFault(f"'{self._options.game}' was over before the agent's first move")
        return self._observe(told)

    def step(self, action: str) -> Step:
        if self._table is None:
            raise EpisodeOver("textarena has no episode under way: reset it first")
        table = self._table
        self._left -= 1
        with self._dice.thrown():
            table.outer.step(action[:_LONGEST_ACTION])
        status = Status.INVALID if is_refused(table.state, self._seat) else Status.OK
        told = self._until_my_turn(table)
        over = bool(table.state.done)
        if over or not self._left:
            self._table = None
        reward = self._outcome(table) if over else 0.0
        info: dict[str, Json] = {"outcome": float(table.state.rewards.get(self._seat, 0))} if over else {}
        return Step(
            observation=self._observe(f"{told}\n{self._reason(table)}".strip() if over else told),
            reward=reward,
            terminated=over,
            truncated=not over and not self._left,
            status=status,
            info=info,
        )

    def _until_my_turn(self, table: Table) -> str:
        """Let the opponents move until the agent is to; return what the agent was told meanwhile."""
        told: list[str] = []
        for _ in range(_MOST_MOVES):
            if table.state.done:
                return "\n".join((*told, *self._hear(table, self._seat)))
            player = table.state.current_player_id
            heard = self._hear(table, player)
            if player == self._seat:
                return "\n".join((*told, *heard))
            move = self._opponent(table, self._said[player], self._rng)
            with self._dice.thrown():
                table.outer.step(move)
        raise EnvFault(f"the agent had no turn within {_MOST_MOVES} moves of its opponents")

    def _hear(self, table: Table, player: int) -> list[str]:
        """What a player is told since it was last asked."""
        messages, table.state.observations[player] = table.state.observations.get(player, []), []
        self._said[player] = "\n".join((self._said.get(player, ""), *(text for _, text, _ in messages)))
        roles, shown = table.state.role_mapping, _SHOWN[self._options.show]
        return [
            text.strip() if sender < 0 else f"{roles.get(sender, f'Player {sender}')}: {text.strip()}"
            for sender, text, kind in _latest_board(messages)
            if kind.name in shown and sender != player
        ]

    def _reason(self, table: Table) -> str:
        reason = table.state.game_info.get(self._seat, {}).get("reason") if table.state.game_info else None
        return f"{_OVER} {reason}" if reason else _OVER

    def _outcome(self, table: Table) -> float:
        """Reward of the seat: alone from 0 to 1, against others from -1, lost, to 1, won."""
        earned = float((table.state.rewards or {}).get(self._seat, 0))
        return min(1.0, max(0.0, earned if self._players == 1 else (earned + 1) / 2))

    def _observe(self, text: str) -> Observation:
        read = POSITIONS.get(type(self._table.game).__name__) if self._table is not None else None
        moves = read(self._table.game, self._seat).moves if read is not None and self._table is not None else None
        return Observation(text=text, valid_actions=moves)

    def end(self) -> None:
        self._table = None

    # --- demonstrations ---

    def expert(self, task: str, seed: int) -> tuple[str, ...] | None:
        """Moves of a search to the end of a small game, where they win."""
        self.reset(task, seed)
        if not self._knows_best():
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
        moves = legal_moves(self._table, self._said[self._seat])
        return rng.choice(moves) if moves else None

    def corpus(self) -> Iterator[str]:
        """The prompt, and what is said in some games by chance, with a move that is none."""
        yield self.spec.prompt
        for task, rng in ((task, Random(task)) for task in self.tasks("train")[:20]):
            yield self.reset(task, 0).text
            while self._table is not None:
                move = self.noise_action(rng) if rng.random() < 0.9 else None
                yield move or "[no move]"
                yield self.step(move or "[no move]").observation.text


def _latest_board(messages: list[tuple[int, str, Any]]) -> list[tuple[int, str, Any]]:
    """Of several pictures of the board only the newest is told."""
    boards = [at for at, (_, _, kind) in enumerate(messages) if kind.name == "GAME_BOARD"]
    return [message for at, message in enumerate(messages) if at not in boards[:-1]]
