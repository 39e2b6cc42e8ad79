"""The learning step, pure: rewards, advantages, losses, packing, metrics."""
