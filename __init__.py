"""agym: a declarative language and runtime for training LLM agents."""

__all__ = ["__version__"]

__version__ = "0.2.0"
