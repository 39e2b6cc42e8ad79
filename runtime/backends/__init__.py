"""The engines behind the protocols of `ports.py`; each is imported by its own file alone, and only when it is built."""
