"""ScienceWorld, the environment; see README.md."""

from .env import SciWorld, create

__all__ = ["SciWorld", "create"]
