"""Playing and replaying: a person at an environment, and an episode done again. Imports no environment itself."""
