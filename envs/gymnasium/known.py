"""Words for actions and states of some environments, and what play can earn there: Gymnasium itself has neither."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gymnasium.envs.toy_text.frozen_lake import generate_random_map

__all__ = ["KNOWN", "Known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    returns: tuple[float, float | None]
    """The worst return and the best; no best where that depends on the start."""
    actions: tuple[str, ...]
    guide: str
    """What it is about; `{map}` stands for the world's own."""
    show: Callable[[Any, Any], str] | None = None
    """The state in words, from the bare environment and what it gave for an observation."""
    prepare: Callable[[Mapping[str, Any], int], Mapping[str, Any]] = lambda kwargs, seed: kwargs
    """Arguments by the seed of the task."""


def _place(at: int, columns: int) -> str:
    row, column = divmod(at, columns)
    return f"row {row + 1}, column {column + 1}"


def _lake(bare: Any, seen: int) -> str:
    tiles = [tile.decode() for tile in bare.desc.ravel()]
    tiles[seen] = f"[{tiles[seen]}]"
    rows = (" ".join(tiles[start : start + bare.ncol]) for start in range(0, len(tiles), bare.ncol))
    return "\n".join((f"You are at {_place(seen, bare.ncol)}.", *rows))


def _lake_drawn(kwargs: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """Add a map drawn from the seed, where Gymnasium would draw one at random."""
    by_chance = kwargs.get("map_name", "") is None and kwargs.get("desc") is None
    return {**kwargs, "desc": generate_random_map(seed=seed)} if by_chance else kwargs


def _cliff(bare: Any, seen: int) -> str:
    return f"You are at {_place(seen, bare.shape[1])}."


_STANDS = ("at R", "at G", "at Y", "at B", "in the taxi")


def _taxi(bare: Any, seen: int) -> str:
    row, column, passenger, stand = bare.decode(seen)
    return (
        f"The taxi is at row {row + 1}, column {column + 1}. The passenger is {_STANDS[passenger]}. "
        f"Destination: {_STANDS[stand].removeprefix('at ')}."
    )


def _blackjack(bare: Any, seen: tuple[int, int, int]) -> str:
    total, card, ace = map(int, seen)
    held = f"{total}, one ace of it counted as 11" if ace else f"{total}"
    return f"You have {held}. The dealer shows {'an ace' if card == 1 else card}."


_LAKE = Known(
    returns=(0, 1),
    actions=("left", "down", "right", "up"),
    guide="Cross a frozen lake from S to G over the ice F, and step into no hole H. Brackets mark where you are.",
    show=_lake,
    prepare=_lake_drawn,
)
_CLIFF = Known(
    returns=(-100, None),
    actions=("up", "right", "down", "left"),
    guide=(
        "Walk over a field of 4 rows and 12 columns, from row 4, column 1 to row 4, column 12, in as few steps as you"
        " can. Between the two, row 4 is a cliff: who steps there loses much and is put back to the start."
    ),
    show=_cliff,
)

KNOWN: Mapping[str, Known] = {
    "FrozenLake": _LAKE,
    "FrozenLake8x8": _LAKE,
    "CliffWalking": _CLIFF,
    "CliffWalkingSlippery": Known(returns=(-1000, None), actions=_CLIFF.actions, guide=_CLIFF.guide, show=_CLIFF.show),
    "Taxi": Known(
        returns=(-200, None),
        actions=("south", "north", "east", "west", "pick up", "drop off"),
        guide=(
            "Drive a taxi to its passenger, pick up, drive to the destination and drop off, in as few actions as you"
            " can; to pick up or drop off at a wrong place costs ten. On the map, of 5 rows and 5 columns, a | cannot"
            " be crossed.\n{map}"
        ),
        show=_taxi,
    ),
    "Blackjack": Known(
        returns=(-1, 1),
        actions=("stick", "hit"),
        guide=(
            "Play a hand of blackjack: hit takes another card, stick ends your hand. Win with more points than the"
            " dealer, who draws to 17, but not more than 21; an ace counts 1 or 11, a face card 10."
        ),
        show=_blackjack,
    ),
    "CartPole": Known(
        returns=(0, 500),
        actions=("left", "right"),
        guide=(
            "Keep a pole upright on a cart by pushes to the left or right, as long as you can. You are told the cart's"
            " position and velocity, the pole's angle and how fast that changes."
        ),
    ),
}
"""By the name that Gymnasium registers, without its version."""
