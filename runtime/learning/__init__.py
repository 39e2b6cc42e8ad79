"""Pure functions of the learning step: rewards, advantages, losses, packing, metrics."""
