"""What an engine proves about a model before it trains it."""
