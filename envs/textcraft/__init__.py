"""TextCraft, the environment; see README.md."""

from .env import TextCraft, create

__all__ = ["TextCraft", "create"]
