"""Engines behind the protocols of `protocols.py`; each is imported by its own file alone, and only when it is built."""
