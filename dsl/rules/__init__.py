"""What a schema cannot say."""
