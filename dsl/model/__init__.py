"""What a recipe and a plan are: frozen dataclasses and the facts about them."""
