"""`python -m agym`."""

from .cli import entry

entry()
