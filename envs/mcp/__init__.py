"""The tools of an MCP server as actions; see README.md."""

from .env import Tools, create

__all__ = ["Tools", "create"]
