"""A terminal in a jail of its own for each episode, and tasks in small repositories; see README.md."""

from .env import Shell, create

__all__ = ["Shell", "create"]
