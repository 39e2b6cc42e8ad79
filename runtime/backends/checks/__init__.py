"""What an engine proves about a model before it trains it, and about weights before it samples with them."""
