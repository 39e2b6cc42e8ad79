"""Training data other than rollouts: datasets, demonstrations, judge scores."""
