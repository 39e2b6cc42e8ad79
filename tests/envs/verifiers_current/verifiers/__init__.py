"""A package with the shape of verifiers 0.4, small enough to be imported in an instant."""

__all__: list = []

__version__ = "0.4.0"
