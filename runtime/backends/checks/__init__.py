"""What an engine checks about a model before training it, and about weights before sampling with them."""
