"""What runs in the interpreter of an environment's own folder: all it needs is the `verifiers` there."""

__all__: list[str] = []
