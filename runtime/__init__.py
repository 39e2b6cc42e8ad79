"""Plan in, run folder out."""
