"""Weights between a learner and the workers of an engine, in buckets, and how they are checked there."""
