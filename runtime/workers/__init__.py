"""The workers of a run and where they live."""
