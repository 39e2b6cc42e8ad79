"""Passages, their index and retrieval."""
