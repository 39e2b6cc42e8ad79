"""Any Gymnasium environment that can be told in words; see README.md."""

from .env import Gymnasium, create

__all__ = ["Gymnasium", "create"]
