"""What a user may choose about TextCraft."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import BadOption
from ..options import read_options
from ..protocol import Json
from .procedural import Draw

__all__ = ["DEPTHS", "TextCraftOptions", "read_textcraft_options"]

DEPTHS = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCraftOptions:
    world: str = "full"
    """`full` has natural words and fixed recipes; `small` has few words, and recipes drawn for each episode."""
    depths: tuple[int, ...] = DEPTHS
    """Goals of these depths only, in every split."""
    terse: bool = False
    """Observations of a few fixed words in place of sentences."""
    max_distractors: int = 4
    """Most crafting commands that are of no use for the goal."""
    shuffle: bool = True
    """Crafting commands in any order; if false, parts come before what is made of them."""
    extras: float = Draw().extras
    max_amount: int = Draw().max_amount

    @property
    def draw(self) -> Draw:
        """What the recipes of the small world may ask for."""
        return Draw(extras=self.extras, max_amount=self.max_amount)


def read_textcraft_options(given: Mapping[str, Json]) -> TextCraftOptions:
    options = read_options(TextCraftOptions, given)
    for name in given:
        if name in Draw.__dataclass_fields__ and options.world != "small":
            raise BadOption(f"textcraft option '{name}' has no effect in a world whose recipes are fixed")
    return options
