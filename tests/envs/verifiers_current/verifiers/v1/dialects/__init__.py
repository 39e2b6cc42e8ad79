"""Forms of messages."""
