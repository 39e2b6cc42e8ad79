"""WebArena's task files against hosts of your own, the environment; see README.md."""

from .env import WebArena, create

__all__ = ["WebArena", "create"]
