"""Sites served on this machine, and tasks on them, the environment; see README.md."""

from .env import Websites, create

__all__ = ["Websites", "create"]
