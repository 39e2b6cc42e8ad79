"""Environments behind servers of other makes, played as any other."""
