"""The expression language: grammar, types, limits, values."""
