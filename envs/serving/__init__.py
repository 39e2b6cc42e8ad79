"""Servers of environments: sessions, dialects, limits."""
