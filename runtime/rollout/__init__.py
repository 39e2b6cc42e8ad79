"""Episodes, and how they are played with environments."""
