"""Where workers live: nothing else in the package knows."""
