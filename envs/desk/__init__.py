"""A service desk with a policy, a database, tools and a simulated customer; see README.md."""

from .env import Desk, create

__all__ = ["Desk", "create"]
