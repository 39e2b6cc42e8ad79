"""Checking: a node tree becomes a Recipe, or diagnostics that say what to write."""
