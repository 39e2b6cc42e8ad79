"""The policy behind an OpenAI-compatible endpoint: requests of text in, the run's own tokens underneath."""
