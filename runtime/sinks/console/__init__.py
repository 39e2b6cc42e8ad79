"""The terminal's view of a run."""
