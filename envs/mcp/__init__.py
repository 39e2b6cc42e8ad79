"""The tools of any MCP server as actions; see README.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..protocol import Json

if TYPE_CHECKING:
    from .env import Tools

__all__ = ["create"]


def create(options: Mapping[str, Json]) -> Tools:
    """Make an instance from options; what it needs is imported only now, for `tasks` can be read without."""
    from .env import Tools

    return Tools(options)
