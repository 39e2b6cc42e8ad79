"""Playing and replaying: a person in an environment, or an episode played again. Imports no environment itself."""
