"""Any Gymnasium environment that can be put in words; see README.md."""

from .env import Gymnasium, create

__all__ = ["Gymnasium", "create"]
