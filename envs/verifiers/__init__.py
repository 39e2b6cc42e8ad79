"""Environments of the verifiers ecosystem, each in an interpreter of its own; see README.md."""

from .env import Verifiers, create

__all__ = ["Verifiers", "create"]
