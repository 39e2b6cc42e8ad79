"""The vLLM backend: a sampler, its engine's core, what is faster on a CPU, and weights on their way into workers."""
