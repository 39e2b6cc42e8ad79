"""Questions answered with searches over a corpus, the environment; see README.md."""

from .env import Search, create

__all__ = ["Search", "create"]
