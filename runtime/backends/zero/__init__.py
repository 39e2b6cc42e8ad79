"""DeepSpeed's ZeRO: the engine of a network, its gradients, and weights that are divided among ranks."""
