"""Data for learning that no rollout gave: datasets, demonstrations, a judge's scores."""
