"""TextArena's games, alone or against opponents; see README.md."""

from .env import TextArena, create

__all__ = ["TextArena", "create"]
