"""Weights between a learner and the workers of an engine, in buckets, and what is proven of them there."""
