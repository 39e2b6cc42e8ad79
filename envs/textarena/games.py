"""TextArena's games by their ids: which can be played here, why others cannot, and one set up for an episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import textarena
from textarena.envs.registration import ENV_REGISTRY

from ..errors import BadOption, suggest
from .dice import Dice, lead_to_dice

__all__ = ["MOVELESS", "Table", "family_of", "find_players", "set_up"]

_WORDS = "it needs NLTK's data; 'python -m nltk.downloader words averaged_perceptron_tagger_eng' fetches them"
_JUDGE = "it asks models at openrouter.ai, which no recipe can pin down"
_FAILS = "it fails on a wrong move, in the version of textarena that is installed"
_WORD_GAMES = (
    "Codenames", "DontSayIt", "Hangman", "LetterAuction", "SpellingBee", "WordChains", "WordLadder", "WordSearch",
    "Wordle",
)  # fmt: skip
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("Debate", "GuessWho", "ScenarioPlanning", "TwentyQuestions"), _JUDGE),
    **dict.fromkeys(("CharacterConclave", "Countdown", "Cryptarithm", "Slitherlink"), _FAILS),
    "SecretMafia": "it may be over before a player has had a turn",
}
"""By the folder of the game; whatever else keeps a game from starting is found out by starting it."""
MOVELESS = frozenset({
    "Alquerque", "ColonelBlotto", "Golf", "LinesOfAction", "NewRecruit", "Santorini", "SettlersOfCatan",
    "SpiteAndMalice", "Stratego", "Taboo", "Tak", "TruthAndDeception", "TwoDollar",
})  # fmt: skip
"""Games whose moves cannot be listed, or take too long to, so that only a model can play the other seats."""
_FEWEST: Mapping[str, int] = {"MarketEntryGame": 3, "PublicGoodsGame": 3, "QuantumTicTacToe": 2, "SpiteAndMalice": 2}
"""Seats, where the game itself does not object to fewer."""
_MOST_PLAYERS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A game under way."""

    outer: Any
    """With the wrappers that put an action into the game's form."""
    game: Any
    """The bare game, which has the state."""

    @property
    def state(self) -> Any:
        return self.game.state


def set_up(name: str, kwargs: Mapping[str, Any], players: int, seed: int, dice: Dice) -> Table:
    """Begin a game; its randomness is that of the dice."""
    family_of(name)
    with dice.thrown():
        outer = game = textarena.make(name, **kwargs)
        while isinstance(game, textarena.Wrapper):
            game = game.env
        outer.reset(num_players=players, seed=seed)
    return Table(outer=outer, game=game)


def find_players(name: str, kwargs: Mapping[str, Any], wanted: int | None) -> int:
    """The seats at the table; raise BadOption where the game cannot be played here."""
    family = family_of(name)
    last: Exception | None = None
    for players in [wanted] if wanted else range(_FEWEST.get(family, 1), _MOST_PLAYERS + 1):
        try:
            set_up(name, kwargs, players, 0, Dice("trial"))
        except (AssertionError, ValueError) as error:
            last = error
        except Exception as error:
            raise BadOption(f"textarena cannot begin '{name}': {type(error).__name__}: {_short(error)}") from error
        else:
            return players
    seats = f"with {wanted} players" if wanted else "with any number of players"
    raise BadOption(f"textarena cannot begin '{name}' {seats}: {_short(last)}")


@cache
def family_of(name: str) -> str:
    """Import a game, and return the folder it lies in; raise BadOption where it cannot be played here."""
    if name not in ENV_REGISTRY:
        raise BadOption(f"textarena has no game '{name[:60]}'{suggest(name, ENV_REGISTRY)}")
    module = str(ENV_REGISTRY[name].entry_point).partition(":")[0]
    family = module.split(".")[2]
    reason = _REFUSED.get(family) or (_WORDS if family in _WORD_GAMES and not _has_words() else None)
    if reason is not None:
        raise BadOption(f"textarena's '{name}' cannot be played here: {reason}")
    try:
        import_module(module)
    except SyntaxError as error:
        raise BadOption(f"textarena's '{name}' cannot be played here: it is written for a newer Python") from error
    except ImportError as error:
        raise BadOption(f"textarena's '{name}' cannot be played here: {_short(error)}") from error
    lead_to_dice()
    return family


def _has_words() -> bool:
    import nltk

    try:
        return bool(nltk.data.find("corpora/words") and nltk.data.find("taggers/averaged_perceptron_tagger_eng"))
    except LookupError:
        return False


def _short(error: Exception | None) -> str:
    return " ".join(str(error).split())[:160]
