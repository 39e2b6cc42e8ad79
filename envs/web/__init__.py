"""A real browser that environments share; see README.md."""

from __future__ import annotations

__all__ = ["BROWSERS"]

BROWSERS = (
    "/usr/lib/chromium/chromium-headless-shell",  # what Debian has on the path is a script that stays around it
    *("chromium-headless-shell", "chrome-headless-shell"),
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
)
"""Suitable programs; the first that exists is used. Those without windows take a third of a whole browser's time."""
