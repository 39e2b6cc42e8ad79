"""Recorded episodes, found and read: `agym view`. Only reads run folders; its index is in the user's cache."""
