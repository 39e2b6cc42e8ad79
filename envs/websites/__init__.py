"""Tasks on web sites that are served on this machine; see README.md."""

from .env import Websites, create

__all__ = ["Websites", "create"]
