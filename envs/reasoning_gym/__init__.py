"""Generated reasoning problems; see README.md."""

from .env import ReasoningGym, create

__all__ = ["ReasoningGym", "create"]
