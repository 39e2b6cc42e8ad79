"""MiniWoB++, small tasks on single web pages, the environment; see README.md."""

from .env import MiniWob, create

__all__ = ["MiniWob", "create"]
