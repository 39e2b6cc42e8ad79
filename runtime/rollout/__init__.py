"""Episodes: how they are played, and with which environments."""
