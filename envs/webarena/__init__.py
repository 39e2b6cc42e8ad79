"""WebArena's task files against hosts of one's own, the environment; see README.md."""

from .env import WebArena, create

__all__ = ["WebArena", "create"]
