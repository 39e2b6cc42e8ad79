"""Playing and replaying: a person plays in an environment, or an episode is played again. Imports no environment
itself."""
