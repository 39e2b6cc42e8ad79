"""Generated text adventures; see README.md."""

from .env import TextWorld, create

__all__ = ["TextWorld", "create"]
