"""Rules that a schema cannot express."""
