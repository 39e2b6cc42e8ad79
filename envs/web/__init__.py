"""A real browser that environments share; see README.md."""

from __future__ import annotations

__all__ = ["BROWSERS"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""Programs that will do, the first that is there."""
