"""Counting, the smallest complete environment; see README.md."""

from .env import Counter, create

__all__ = ["Counter", "create"]
