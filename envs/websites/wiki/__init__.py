"""The wiki of the Tolven Isles: pages with histories, talk, categories, a watchlist."""

from __future__ import annotations

from .pages import SITE

__all__ = ["SITE"]
