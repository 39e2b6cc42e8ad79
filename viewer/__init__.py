"""Recorded episodes, found and read: `agym view`. Only reads run folders; its index lies in the user's cache."""
