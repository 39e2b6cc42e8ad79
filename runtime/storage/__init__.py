"""The run folder: written, read, compared."""
