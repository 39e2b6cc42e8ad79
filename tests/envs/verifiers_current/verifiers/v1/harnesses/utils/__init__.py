"""Where verifiers keeps its harnesses."""
