"""Instructions in a grid world, the environment; see README.md."""

from .env import BabyAI, create

__all__ = ["BabyAI", "create"]
